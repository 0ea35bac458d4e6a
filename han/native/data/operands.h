/* Where the operands of an instruction are in this process, and what it adds to the counts. */
#ifndef HAN_OPERANDS_H
#define HAN_OPERANDS_H

#include "engine.h"

static inline const han_control *han_shown_by(const han_engine *e, unsigned channel,
                                              unsigned slot) {
    const han_channel *ch = &e->channels[channel];
    return (const han_control *)(void *)(ch->memory + ch->control) + slot;
}

/* Where a peer's buffer is in this process. A flag of the peer's has ordered what it shows: it
 * shows its addresses before it posts anything. */
static inline uint8_t *han_at_peer(const han_engine *e, unsigned base) {
    const han_control *peer = han_shown_by(e, HAN_PEER_CHANNEL(base), HAN_PEER_SLOT(base));
    uint64_t there = atomic_load_explicit(&peer->shown[HAN_PEER_BUFFER(base) - HAN_B_SEND],
                                          memory_order_relaxed);
    const uint64_t *shifts = e->plan->shifts + HAN_SHIFTS * peer->rank;
    return (uint8_t *)(uintptr_t)(there + shifts[HAN_PEER_BUFFER(base) - HAN_B_SEND]);
}

static inline uint8_t *han_at(const han_engine *e, const han_instr *i, int ref) {
    unsigned base = i->base[ref];
    return (base & HAN_B_PEER ? han_at_peer(e, base) : e->bases[base]) + i->off[ref];
}

/* There is one writer at a time: an addition needs no lock. */
static inline void han_add(_Atomic uint64_t *count, uint64_t n) {
    uint64_t before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + n, memory_order_relaxed);
}

#endif
