#include "engine/loops.h"

#include "engine/sizes.h"
#include "strides.h"

/* Add a stride `count` times; counts may be negative, as all fields wrap around. Where the message is
 * not the largest one, `whole`, the terms of data say where operands are. */
static void advance(const han_plan *p, uint32_t k, const han_stride *stride, uint64_t count,
                    bool whole) {
    han_instr *i = &p->fitted[k];
    han_term *t = whole || !p->terms || !p->terms[k].each ? NULL : &p->terms[k];
    han_add_stride(i, t, stride, count);
    if (t) han_resolve_one(p, i, t, p->table ? &p->table[t->block] : &p->message, p->table);
}

void han_end_loop(han_engine *e, han_plan *p, uint32_t s) {
    const han_instr *end = &p->code[e->pc[s]];
    const han_stride *strides = &p->strides[HAN_LOOP_STRIDES(end)];
    uint32_t length = (uint32_t)end->n, first = e->pc[s] - length;
    bool again = ++e->loops[s] < HAN_LOOP_TIMES(end);
    uint64_t count = again ? 1 : 1 - (uint64_t)HAN_LOOP_TIMES(end);
    bool whole = !p->table && p->nbytes == p->grains * p->grain;
    for (uint32_t k = 0; k < length; k++) advance(p, first + k, &strides[k], count, whole);
    if (again) {
        e->pc[s] = first;
        e->ahead[s] += length;
    } else { /* the mark is no instruction */
        e->pc[s]++;
        e->ahead[s]--;
        e->loops[s] = 0;
    }
}

uint32_t han_done_until(const han_engine *e, const han_plan *p, uint32_t s) {
    uint32_t k = e->pc[s];
    if (p->strides && e->loops[s])
        while (p->code[k].code != HAN_LOOP) k++;
    return k;
}

bool han_same_task(const han_engine *e, const han_plan *p, uint32_t s, uint32_t task) {
    uint32_t pc = e->pc[s];
    if (han_at_loop(e, p, s)) {
        const han_instr *end = &p->code[pc];
        const uint32_t first = pc - (uint32_t)end->n;
        if (e->loops[s] + 1 < HAN_LOOP_TIMES(end))
            return p->code[first].task + p->strides[HAN_LOOP_STRIDES(end)].task == task;
        pc++;
    }
    return pc < p->streams[s].stop && p->code[pc].task == task;
}
