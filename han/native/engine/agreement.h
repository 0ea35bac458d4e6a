/* Whether the ranks of a channel make the same calls.
 *
 * Each rank keeps a digest of the signatures of all its calls so far, whose low bits count them:
 * ranks that made the same calls have the same digest after the same number of calls. A rank stores
 * its digest in its control record, in the channel's list of the digests of its last HAN_CALLS_KEPT
 * calls, and beside each flag that it posts. A rank that waits for a flag compares that digest with
 * its own before it reads the data that the flag announces. */
#ifndef HAN_AGREEMENT_H
#define HAN_AGREEMENT_H

#include "engine.h"

#define HAN_CALLS_COUNT UINT64_C(0xffff) /* the bits of a digest that count calls */

/* Add the next call to the digest of all calls; returns the digest. */
static inline uint64_t han_add_call(han_engine *e, uint64_t signature) {
    uint64_t digest = (e->calls[e->epoch % HAN_CALLS_KEPT] & ~HAN_CALLS_COUNT) ^ signature;
    digest = (digest ^ digest >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t calls = (digest & ~HAN_CALLS_COUNT) | ((e->epoch + 1) & HAN_CALLS_COUNT);
    return e->digest = e->calls[(e->epoch + 1) % HAN_CALLS_KEPT] = calls;
}

/* Whether a peer raised in an earlier call in which this rank did not. The peer's rings are then
 * out of step with this rank's, and data received since cannot be trusted. A peer stores `erred`
 * before anything that it posts later. */
static inline bool han_out_of_step(const han_engine *e) {
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        const han_control *all = han_records(ch);
        uint64_t mine = atomic_load_explicit(&all[ch->me].erred, memory_order_relaxed);
        for (uint32_t r = 0; r < ch->size; r++) {
            uint64_t erred = atomic_load_explicit(&all[r].erred, memory_order_relaxed);
            if (erred > mine && erred <= e->epoch) return true;
        }
    }
    return false;
}

/* Whether this rank raised in an earlier call, after the last one that all are known to agree on. */
static inline bool han_has_erred(const han_engine *e) {
    const han_channel *ch = e->channels;
    return e->n_channels &&
           atomic_load_explicit(&han_records(ch)[ch->me].erred, memory_order_relaxed) > e->agreed;
}

/* True if a peer made a different call and neither side raised. Sets `dead_rank`. The caller must
 * hold the engine's lock. */
bool han_mismatch(han_engine *);

/* The same for one peer and the current call: the peer that has posted the flag of a HAN_WAIT, with
 * a digest that differs from this rank's. It may have gone on to later calls. */
bool han_peer_calls_other(han_engine *, const han_instr *wait);

#endif
