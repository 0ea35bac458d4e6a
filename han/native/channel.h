/* The layout of a channel: memory that the ranks of one group on a node share.
 *
 * A channel holds, in this order: a control record for each rank, the digests of each rank's recent
 * calls, the reason why each rank left, flags, small slots (in banks) and a ring of cells for each rank. Only Python reads and writes the reasons.
 * han/model/channel_layout.py computes the same layout.
 *
 * A lent channel lies in the arena of its first rank. Its rings are apart from the rest. They have
 * no memory at first; the first rank adds some before a run that needs it: rings.h. */
#ifndef HAN_CHANNEL_H
#define HAN_CHANNEL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define HAN_LINE 64
#define HAN_RANK_FLAGS 8                 /* flags of one rank, a line each */
#define HAN_SMALL_SLOT (4096 + HAN_LINE) /* bytes of a small slot: the line of its flag, and data */
#define HAN_SMALL_BANKS 16               /* of a lent channel: */
#define HAN_LENT_BANKS 8
#ifndef HAN_RING_LEAST
#define HAN_RING_LEAST (128 * 1024) /* bytes of a ring at least */
#endif
#define HAN_EPOCH_SHIFT 24 /* a run may post 2^24 - 1 values to one flag */
#define HAN_TAKEN 64       /* runs whose part of a ring is remembered; a power of two */
#define HAN_REASON 512     /* bytes of the reason why a rank left */
#define HAN_CALLS_KEPT 64  /* recent calls that ranks compare: agreement.h; a power of two */

/* Runs whose offers are the bits of `entered` below HAN_EPOCH_SHIFT, one bit each: engine/stepping.h. */
#define HAN_HISTORY HAN_EPOCH_SHIFT

/* The beginning of a flag's cache line. The rank that posts the flag also stores the digest of its
 * calls there, so that a rank that waits for the flag compares calls without reading more lines. */
typedef struct {
    _Atomic uint64_t value; /* run << HAN_EPOCH_SHIFT, + k */
    _Atomic uint64_t calls; /* engine/agreement.h; of the run that posted `value`, or a later one */
} han_flag;

/* What a rank tells its peers. Each rank has one record of three cache lines, which it alone writes,
 * except for `sleepers`, `bell` and `departures`. */
typedef struct {
    _Atomic uint64_t done;      /* runs finished */
    _Atomic uint64_t entered;   /* runs begun << HAN_EPOCH_SHIFT | offers of the last runs */
    _Atomic uint64_t signature; /* of the current run */
    _Atomic uint64_t calls;     /* digest of all calls up to the current run: engine/agreement.h */
    int64_t pid;
    uint64_t pid_start; /* start time of the process: tells a reused pid */
    uint64_t pid_namespace;
    _Atomic uint64_t nbytes; /* of the current run, if its plan is for many sizes */
    /* The second line, which peers read in every run, is seldom written: in the first record when ranks
     * sleep and wake up. */
    _Atomic uint64_t erred; /* 1 + the last call that raised here before data moved */
    /* Used in the channel's first record only: ranks that sleep, and the word they sleep on. */
    _Atomic uint32_t sleepers, bell;
    _Atomic uint32_t gone;       /* 1: this rank begins no more runs: engine/stepping.h */
    _Atomic uint32_t departures; /* in the channel's first record only: ranks that are gone */
    uint64_t rank;               /* in the communicator */
    /* In the first record of a lent channel only: where the rings are in the arena, and how many
     * bytes of each of them have memory. */
    _Atomic uint64_t cells, room;
    _Atomic uint64_t closed; /* 1: this rank accesses the channel no more */
    uint64_t unused;
    _Atomic uint64_t shown[3]; /* addresses of send buffer, receive buffer, scratch: HAN_W_SHOWN */
    uint64_t unused_too[5];
} han_control;

_Static_assert(sizeof(han_control) == 3 * HAN_LINE, "as in han/model/channel_layout.py");
_Static_assert(HAN_CALLS_KEPT == 8 * HAN_LINE / 8, "as in han/model/channel_layout.py");

/* One rank's view of a channel. */
typedef struct {
    uint8_t *memory;
    uint32_t size, me;              /* number of ranks, and this rank's place among them */
    uint64_t control, flags, small; /* offsets of the areas */
    uint64_t small_bank;            /* bytes of one bank of small slots */
    uint64_t banks;                 /* their number, a power of two */
    uint8_t *rings;                 /* the first ring of cells; NULL: it has no memory yet */
    uint64_t ring;                  /* bytes from one rank's ring to the next one */
    uint64_t wrap;                  /* bytes of each ring that runs use; they grow if it is lent */
    uint64_t least;                 /* bytes of a ring, once it has memory */
    uint8_t *lender; /* where the arena of the first rank is mapped; NULL: it is not lent */
    uint64_t known;  /* runs that every rank is known to have finished */
    /* Each run takes the next part of the rings, at the same offset on all ranks. `head` counts all
     * bytes ever taken. `taken` holds where recent runs began, from `oldest` to `newest`. A run may
     * write its part once `needed` runs are finished: those that used any of it before. */
    uint64_t head, needed;
    uint32_t oldest, newest;
    struct {
        uint64_t start, epoch;
    } taken[HAN_TAKEN];
} han_channel;

/* The control records of a channel, one for each rank. */
static inline han_control *han_records(const han_channel *ch) {
    return (han_control *)(void *)(ch->memory + ch->control);
}

/* Where a rank stores the digest of all its calls up to a run, counted from 1. The digests follow
 * the control records. */
static inline _Atomic uint64_t *han_calls_of(const han_channel *ch, uint32_t r, uint64_t run) {
    uint8_t *all = (uint8_t *)han_records(ch) + ch->size * sizeof(han_control);
    return (_Atomic uint64_t *)(void *)all + r * HAN_CALLS_KEPT + run % HAN_CALLS_KEPT;
}

/* The bank of small slots of a run. */
static inline uint8_t *han_bank(const han_channel *ch, uint64_t run) {
    return ch->memory + ch->small + (run & (ch->banks - 1)) * ch->small_bank;
}

/* The number of runs that every peer of a channel has finished. */
static inline uint64_t han_least_done(const han_channel *ch) {
    const han_control *all = han_records(ch);
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < ch->size; r++) {
        if (r == ch->me) continue;
        uint64_t done = atomic_load_explicit(&all[r].done, memory_order_acquire);
        if (done < least) least = done;
    }
    return least;
}

#endif
