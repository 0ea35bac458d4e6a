/* Loops of a large program. Records that differ from earlier ones by the same stride again and again are
 * stored once (memory/roll.h). After a stream has passed the records of a loop, their strides are added
 * to them, and it begins at the first of them again. After the last time they are as at first. */
#ifndef HAN_LOOPS_H
#define HAN_LOOPS_H

#include "engine.h"

/* Whether a stream has just passed the last record of a loop. */
static inline bool han_at_loop(const han_engine *e, const han_plan *p, uint32_t s) {
    return p->strides && e->pc[s] < p->streams[s].stop && p->code[e->pc[s]].code == HAN_LOOP;
}

/* Where a stream is in the code, if its loops were written out. */
static inline uint32_t han_position_of(const han_engine *e, const han_plan *p, uint32_t s) {
    return e->pc[s] + (p->strides ? e->ahead[s] : 0);
}

/* Go on with the loop, or leave it. */
void han_end_loop(han_engine *, han_plan *, uint32_t s);

/* The end of the instructions that a stream has done at least once. */
uint32_t han_done_until(const han_engine *, const han_plan *, uint32_t s);

/* Whether the next instruction of a stream belongs to this task. */
bool han_same_task(const han_engine *, const han_plan *, uint32_t s, uint32_t task);

#endif
