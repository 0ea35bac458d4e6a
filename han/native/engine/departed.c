#include "engine/departed.h"

#include "engine/bell.h"

void han_leave(han_engine *e) {
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        han_control *all = han_records(ch);
        if (atomic_exchange_explicit(&all[ch->me].gone, 1, memory_order_release)) continue;
        atomic_fetch_add_explicit(&all[0].departures, 1, memory_order_release);
        if (e->bells >> c & 1) han_ring(ch);
    }
}

/* A peer that is gone and has not finished more than `epoch` runs, or -1. */
static int lost(const han_channel *ch, uint64_t epoch) {
    const han_control *all = han_records(ch);
    if (!atomic_load_explicit(&all[0].departures, memory_order_acquire)) return -1;
    for (uint32_t r = 0; r < ch->size; r++) {
        if (r == ch->me || !atomic_load_explicit(&all[r].gone, memory_order_acquire)) continue;
        if (atomic_load_explicit(&all[r].done, memory_order_acquire) <= epoch)
            return (int)all[r].rank;
    }
    return -1;
}

enum han_status han_departed(han_engine *e) {
    uint64_t epoch = atomic_load_explicit(&e->finished, memory_order_relaxed);
    uint64_t issued = atomic_load_explicit(&e->issued, memory_order_relaxed);
    if (epoch >= issued) return HAN_BLOCKED; /* another thread has just finished the run */
    for (uint32_t c = 0; c < e->n_channels; c++) {
        int rank = lost(&e->channels[c], epoch);
        if (rank < 0) continue;
        e->dead_rank = rank;
        return HAN_E_GONE;
    }
    return HAN_BLOCKED;
}
