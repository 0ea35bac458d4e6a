/* Trials of calls in which no rank may wait for the leader's choice: the leader announces in advance
 * which runs take the rival.
 *
 * These are nonblocking calls, whose start must not wait, and gathers and reductions to a root, in
 * which senders run ahead of the root. The leader of a class of calls stores an announcement in its
 * control record, HAN_HISTORY runs of this class or more before it takes effect. A rank begins such
 * a run only if all ranks have finished the run HAN_HISTORY before it. Hence it finds every
 * announcement that concerns the run, and the leader replaces one only when no rank can still need
 * it. No rank waits for another one's choice.
 *
 * All ranks make the same calls in the same order. Each keeps a table of a few classes and counts
 * the runs of each of them. It enters and replaces classes by rules that depend on the order of
 * calls only, so all ranks have the same table at the same run. */
#ifndef HAN_ANNOUNCED_H
#define HAN_ANNOUNCED_H

#include "engine.h"

/* Runs without a call of a class until another one may take its place: no rank can be so late that
 * it still makes these calls. */
enum { HAN_UNUSED = 64 };
_Static_assert(HAN_UNUSED > HAN_HISTORY, "a class is replaced only when no rank needs it");

/* An announcement: one plan for all runs, but the other one for `length` runs from `from` on.
 * `rival`: the rival is what runs take before. HAN_FOR_EVER: for all runs from `from` on. The word
 * holds, from the highest bit down, 16 bits of the generation, 40 of `from`, 7 of `length`, and
 * `rival`. */
enum { HAN_FOR_EVER = 0x7f };
#define HAN_FROM (((uint64_t)1 << 40) - 1)
static inline uint64_t han_announcement(uint16_t generation, uint64_t from, unsigned length,
                                        bool rival) {
    return (uint64_t)generation << 48 | (from & HAN_FROM) << 8 | length << 1 | rival;
}

/* Whether a run of a class takes the rival. An announcement of another generation is not of this
 * class: its leader has not announced anything. */
static inline bool han_takes_rival(uint64_t announcement, uint16_t generation, uint64_t run) {
    if (announcement >> 48 != generation) return false;
    uint64_t from = announcement >> 8 & HAN_FROM;
    unsigned length = announcement >> 1 & HAN_FOR_EVER;
    bool other = run >= from && (length == HAN_FOR_EVER || run - from < length);
    return other != (announcement & 1);
}

/* Whether the leader has announced in advance what a run takes. */
static inline bool han_is_announced(const han_run *run) {
    const han_plan *p = run->plan;
    return p->tried && !p->counted && (p->ahead || !run->led);
}

/* Count the run that begins, of such a call, and announce what the leader wants; returns whether
 * the run takes the rival. Blocking and nonblocking calls are different classes. */
bool han_follow(han_engine *, const han_run *);

#endif
