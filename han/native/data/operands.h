/* The addresses of an instruction's operands in this process, and its additions to a plan's
 * counts. */
#ifndef HAN_OPERANDS_H
#define HAN_OPERANDS_H

#include "engine.h"

/* The control record in which a peer shows the addresses of its buffers. */
static inline const han_control *han_shown_by(const han_engine *e, unsigned channel,
                                              unsigned slot) {
    return han_records(&e->channels[channel]) + slot;
}

/* The address of a peer's buffer in this process. This rank has waited for a flag of the peer,
 * which the peer posted after it had stored its addresses: relaxed loads suffice. */
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

/* Add to a count. Only the thread that steps the engine writes counts: no atomic addition
 * needed. */
static inline void han_add(_Atomic uint64_t *count, uint64_t n) {
    uint64_t before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + n, memory_order_relaxed);
}

#endif
