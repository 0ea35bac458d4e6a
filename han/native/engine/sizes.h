/* Plans for many sizes. The instructions of such a plan are those of its largest message; before a
 * run of another size, their offsets and lengths are computed again from the plan's terms.
 *
 * A message is cut in proportion into the plan's grains. Positions are multiples of a grain's bytes
 * in the largest message, so that memory for some grains of that one holds these grains of any
 * message (han/model/program.py: positions). */
#ifndef HAN_SIZES_H
#define HAN_SIZES_H

#include "plan.h"

/* Fit the instructions to a message, or blocks, of `nbytes` bytes. */
void han_fit(han_plan *, uint64_t nbytes);

/* What a run of a plan is, for the digest of calls: a plan for many sizes with its size. */
static inline uint64_t han_call_of(const han_plan *p, uint64_t nbytes) {
    return p->terms ? p->signature + nbytes * UINT64_C(0x9e3779b97f4a7c15) : p->signature;
}

#endif
