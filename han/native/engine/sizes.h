/* Plans for many sizes. The instructions of such a plan are those of its largest message; before a
 * run of another size, their offsets and lengths are computed again from the plan's terms.
 *
 * A message is cut in proportion into the plan's grains. Positions are multiples of a grain's bytes
 * in the largest message, so that memory for some grains of that one holds these grains of any
 * message (han/model/program.py: positions). Blocks that differ in size are cut like messages, each
 * by its own size.
 *
 * In a plan for own sizes no rank knows the sizes of all blocks. Its operations move whole blocks,
 * and some are meant for small ones, others for large ones. */
#ifndef HAN_SIZES_H
#define HAN_SIZES_H

#include "engine.h"

/* Fit the instructions to a run's message or blocks, unless they are. */
void han_resolve(han_plan *, const han_run *);

enum { HAN_RATE_BITS = 32 }; /* of the fraction of a rate, as in han/model/program.py */

static inline uint64_t han_position(const han_block *b, uint64_t grain, uint32_t number) {
    uint64_t up = (UINT64_C(1) << HAN_RATE_BITS) - 1;
    uint64_t at = ((number * b->rate + up) >> HAN_RATE_BITS) * grain;
    return at < b->nbytes ? at : b->nbytes;
}

/* Where an instruction that moves grains of block `b` begins, by operand, and how much it moves.
 * `starts` holds blocks by number, and where the last one ends; it is NULL if all are like `b`. */
static inline void han_resolve_one(const han_plan *p, han_instr *i, const han_term *t,
                                   const han_block *b, const han_block *starts) {
    uint64_t start = han_position(b, p->grain, t->start);
    uint64_t length = han_position(b, p->grain, t->stop) - start;
    if (t->count)
        length = starts ? starts[t->block + t->count].start - starts[t->block].start
                        : t->count * b->nbytes;
    for (int ref = 0; ref < 4; ref++) {
        uint64_t before = starts ? starts[t->blocks[ref]].start : t->blocks[ref] * b->nbytes;
        i->off[ref] = t->offset[ref] + before + start - han_position(b, p->grain, t->origin[ref]);
    }
    i->n = t->each == 1 ? length : length / t->each;
}

/* Bytes of the class of all calls of own sizes (tasks/own_sizes.py), and bytes that a run with Python's
 * lock held moves at most (han/runtime/measured.py). */
enum { HAN_OWN_NBYTES = 32 << 10, HAN_BRIEF = 64 << 10 };

/* Whether a run is brief: its plan is, and it moves few bytes. */
static inline bool han_is_brief(const han_run *run) {
    uint64_t nbytes = 0;
    if (!run->plan->brief) return false;
    for (uint32_t b = 0; run->plan->own && b < run->plan->n_blocks - 1; b++)
        if (!(run->sizes[b] & HAN_AT_MOST)) nbytes += run->sizes[b];
    return nbytes <= HAN_BRIEF;
}

/* A block of `nbytes` bytes, behind `start` bytes of others. */
static inline han_block han_block_of(const han_plan *p, uint64_t nbytes, uint64_t start) {
    uint64_t grains = (nbytes + p->grain - 1) / p->grain;
    return (han_block){
        .nbytes = nbytes, .start = start, .rate = (grains << HAN_RATE_BITS) / p->grains};
}

/* A number that stands for the sizes of blocks. */
uint64_t han_digest_of_sizes(const uint64_t *sizes, uint32_t n);

static inline bool han_is_resolved(const han_plan *p, const han_run *run) {
    return !p->terms || (p->nbytes == run->nbytes && !p->table);
}

/* What a run is, for the digest of calls: that of a plan for many sizes with its sizes. */
static inline uint64_t han_call_of(const han_plan *p, const han_run *run) {
    if (!p->terms) return p->signature;
    bool same = !p->table || p->own; /* what differs from rank to rank is no part of the call */
    uint64_t sizes = same ? run->nbytes : han_digest_of_sizes(run->sizes, p->n_blocks);
    return p->signature + sizes * UINT64_C(0x9e3779b97f4a7c15);
}

#endif
