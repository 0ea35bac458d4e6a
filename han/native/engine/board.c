#include "engine/board.h"

static han_notes *notes_of(const han_board *b, uint32_t r) {
    return (han_notes *)(void *)(b->memory + r * b->stride);
}

static han_choice *next_choice(const han_board *b) {
    return &notes_of(b, 0)->choices[b->made % HAN_BOARD_CHOICES];
}

static void advance(han_board *b) {
    atomic_store_explicit(&notes_of(b, b->me)->read, ++b->made, memory_order_release);
}

/* Whether every rank has read the choice whose place the next one takes. */
static bool has_room(const han_board *b) {
    for (uint32_t r = 0; r < b->size && b->made >= HAN_BOARD_CHOICES; r++)
        if (atomic_load_explicit(&notes_of(b, r)->read, memory_order_acquire) <=
            b->made - HAN_BOARD_CHOICES)
            return false;
    return true;
}

bool han_board_publish(han_board *b, uint64_t slot, uint64_t call) {
    if (!has_room(b)) return false;
    han_choice *choice = next_choice(b);
    atomic_store_explicit(&choice->slot, slot, memory_order_relaxed);
    atomic_store_explicit(&choice->call, call, memory_order_relaxed);
    atomic_store_explicit(&choice->number, b->made + 1, memory_order_release);
    advance(b);
    return true;
}

bool han_board_read(han_board *b, uint64_t *slot, uint64_t *call) {
    const han_choice *choice = next_choice(b);
    atomic_store_explicit(&notes_of(b, b->me)->reached, b->made + 1, memory_order_release);
    if (atomic_load_explicit(&choice->number, memory_order_acquire) != b->made + 1) return false;
    *slot = atomic_load_explicit(&choice->slot, memory_order_relaxed);
    *call = atomic_load_explicit(&choice->call, memory_order_relaxed);
    advance(b);
    return true;
}

bool han_board_gathered(const han_board *b) {
    for (uint32_t r = 0; r < b->size; r++)
        if (r != b->me &&
            atomic_load_explicit(&notes_of(b, r)->reached, memory_order_acquire) <= b->made)
            return false;
    return true;
}

void han_board_leave(han_board *b, uint32_t slot) {
    han_notes *mine = notes_of(b, b->me);
    uint64_t n = atomic_load_explicit(&mine->entries, memory_order_relaxed);
    atomic_store_explicit(&mine->log[n % HAN_BOARD_SLOTS], slot, memory_order_relaxed);
    atomic_store_explicit(&mine->entries, n + 1, memory_order_release);
}

int64_t han_board_reclaim(han_board *b) {
    for (uint32_t r = 0; r < b->size; r++) {
        const han_notes *theirs = notes_of(b, r);
        uint64_t entries = atomic_load_explicit(&theirs->entries, memory_order_acquire);
        while (b->heard[r] < entries) {
            uint32_t slot = atomic_load_explicit(&theirs->log[b->heard[r]++ % HAN_BOARD_SLOTS],
                                                 memory_order_relaxed) %
                            HAN_BOARD_SLOTS;
            if (++b->leavers[slot] < b->size) continue;
            b->leavers[slot] = 0;
            return slot;
        }
    }
    return -1;
}
