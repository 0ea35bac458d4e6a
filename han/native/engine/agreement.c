#include "engine/agreement.h"

/* Whether one of two ranks raised, and the other did not, after the last call that all agreed
 * on. */
static bool erred_alone(const han_control *a, const han_control *b, uint64_t agreed) {
    uint64_t x = atomic_load_explicit(&a->erred, memory_order_relaxed);
    uint64_t y = atomic_load_explicit(&b->erred, memory_order_relaxed);
    return x != y && (x > agreed || y > agreed);
}

bool han_mismatch(han_engine *e) {
    uint64_t now = e->epoch + e->started, agreed = now;
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        const han_control *all = han_records(ch);
        for (uint32_t r = 0; r < ch->size; r++) {
            uint64_t calls = atomic_load_explicit(&all[r].calls, memory_order_acquire);
            uint64_t runs = atomic_load_explicit(&all[r].entered, memory_order_acquire) >>
                            HAN_EPOCH_SHIFT; /* `calls` counts them too, modulo 2^16 */
            uint64_t behind = (now - calls) & HAN_CALLS_COUNT;
            if (r == ch->me) continue;
            if (runs > now || now - runs >= HAN_CALLS_KEPT || behind >= HAN_CALLS_KEPT ||
                behind > now) { /* ahead: the peer compares; far behind: unknown */
                agreed = e->agreed;
            } else if (calls == e->calls[calls % HAN_CALLS_KEPT]) {
                if (now - behind < agreed) agreed = now - behind;
            } else if (erred_alone(&all[r], &all[ch->me], e->agreed)) {
                agreed = e->agreed; /* the rank that raised ran no call; its notice says so */
            } else {
                e->dead_rank = (int)all[r].rank;
                return true;
            }
        }
    }
    if (agreed > e->agreed) e->agreed = agreed;
    return false;
}
