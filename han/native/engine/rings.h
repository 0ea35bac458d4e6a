/* The rings of a lent channel: they start without memory, and grow.
 *
 * All ranks make the same calls, so each of them knows from a run's plan how long the rings must be.
 * The first rank of the channel adds the memory before it starts such a run, and announces it in
 * its control record. The other ranks wait for that before they begin the run. */
#ifndef HAN_RINGS_H
#define HAN_RINGS_H

#include "channel.h"

/* The bytes of a ring from which a run takes `bytes`: enough for some runs in a row. */
static inline uint64_t han_ring_for(const han_channel *ch, uint64_t bytes) {
    uint64_t wrap = ch->least;
    while (wrap < 8 * bytes) wrap *= 2;
    return wrap < ch->ring ? wrap : ch->ring;
}

/* Whether a run that takes `bytes` of each ring fits: a run takes half of a ring at most. */
static inline bool han_ring_fits(const han_channel *ch, uint64_t bytes) {
    return 2 * bytes <= ch->wrap;
}

/* Whether the rings have the memory that a run needs. */
static inline bool han_ring_there(const han_channel *ch, uint64_t bytes) {
    if (!bytes || han_ring_fits(ch, bytes)) return true;
    uint64_t room = atomic_load_explicit(&han_records(ch)->room, memory_order_acquire);
    return room >= han_ring_for(ch, bytes);
}

/* Use longer rings from the run after `epoch` runs on. No position in the shorter ones is valid any
 * more, so the run writes when all ranks have finished all earlier runs. */
static inline void han_grow_ring(han_channel *ch, uint64_t epoch, uint64_t bytes) {
    ch->rings = ch->lender + atomic_load_explicit(&han_records(ch)->cells, memory_order_relaxed);
    ch->wrap = han_ring_for(ch, bytes);
    ch->head = 0;
    ch->oldest = ch->newest;
    ch->needed = epoch;
}

#endif
