/* When a callback that MPI calls in each round of its progress looks around: seldom in short calls, and
 * soon while MPI waits. */
#ifndef HAN_PACE_H
#define HAN_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

enum {
    HAN_PACE_NS = 5000000,          /* between two looks, at least */
    HAN_PACE_ROUNDS = 1000,         /* between two looks: MPI is waiting */
    HAN_PACE_LONGEST_NS = 20000000, /* as rounds of ranks that yield to each other may be slow */
    HAN_PACE_CLOCK = 64, /* rounds between two readings of the clock, unless they are slow */
};

/* Zero at first. Threads may use it at the same time. */
typedef struct {
    _Atomic uint64_t read, next, looked; /* of the clock: last reading, next look, last look */
    _Atomic uint32_t rounds;             /* since `next` was set */
    _Atomic bool slow;                   /* the clock is read in each round */
} han_pace;

/* Count a round; returns whether it is time for a look. */
static inline bool han_due(han_pace *p) {
    uint32_t round = atomic_load_explicit(&p->rounds, memory_order_relaxed) + 1;
    atomic_store_explicit(&p->rounds, round, memory_order_relaxed);
    if (!p->slow && round % HAN_PACE_CLOCK) return false;
    uint64_t now = han_now_ns();
    p->slow = now - p->read > HAN_PACE_NS;
    p->read = now;
    if (now < p->next) return false;
    bool due = round > HAN_PACE_ROUNDS || now > p->looked + HAN_PACE_LONGEST_NS;
    p->next = now + HAN_PACE_NS;
    p->rounds = 0;
    if (due) p->looked = now;
    return due;
}

#endif
