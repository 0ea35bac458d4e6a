/* Plans for many sizes. The instructions of such a plan are those of its largest message; before a
 * run of another size, their offsets and lengths are computed again from the plan's terms.
 *
 * A message is cut in proportion into the plan's grains. Positions are multiples of a grain's bytes
 * in the largest message, so that memory for some grains of that one holds these grains of any
 * message (han/model/program.py: positions). Blocks that differ in size are cut like messages, each
 * by its own size. */
#ifndef HAN_SIZES_H
#define HAN_SIZES_H

#include "engine.h"

/* Fit the instructions to a run's message or blocks, unless they are. */
void han_fit(han_plan *, const han_run *);

/* A number that stands for the sizes of blocks. */
uint64_t han_digest_of_sizes(const uint64_t *sizes, uint32_t n);

static inline bool han_fits(const han_plan *p, const han_run *run) {
    return !p->terms || (p->nbytes == run->nbytes && !p->table);
}

/* What a run is, for the digest of calls: that of a plan for many sizes with its sizes. */
static inline uint64_t han_call_of(const han_plan *p, const han_run *run) {
    if (!p->terms) return p->signature;
    uint64_t sizes = p->table ? han_digest_of_sizes(run->sizes, p->n_blocks) : run->nbytes;
    return p->signature + sizes * UINT64_C(0x9e3779b97f4a7c15);
}

#endif
