/* What groups of records that repeat have alike, and what changes in them at strides. */
#ifndef HAN_STRIDES_H
#define HAN_STRIDES_H

#include <stdbool.h>
#include <stddef.h>

#include "program.h"

/* A record and its term; NULL in a program for one size. */
typedef struct {
    const han_instr *code;
    const han_term *term;
} han_record;

static inline han_record han_record_at(const han_instr *code, const han_term *terms, size_t k) {
    return (han_record){&code[k], terms ? &terms[k] : NULL};
}

static inline bool han_is_counted(const han_instr *i) {
    return i->code == HAN_POST || i->code == HAN_WAIT || i->code == HAN_AWAIT;
}

/* What does not change in a loop. Flags and the memory of peers may be those of peers in turn. */
static inline uint32_t han_fixed_base(uint32_t base) {
    return base & HAN_B_PEER ? base & ~((1u << HAN_PEER_CHANNEL_SHIFT) - 1) : base;
}

static inline uint32_t han_fixed_peer(const han_instr *i) {
    bool in_turn = i->code == HAN_WAIT || i->code == HAN_PULL || i->code == HAN_PUSH;
    return in_turn ? 0 : (uint32_t)i->peer;
}

/* Whether two records are of one kind, so that one may be the other with a stride. */
static inline bool han_alike(han_record a, han_record b) {
    const han_instr *i = a.code, *j = b.code;
    uint64_t other = (uint64_t)(i->code ^ j->code) | (uint64_t)(i->stream ^ j->stream) |
                     (i->slot ^ j->slot) | (han_fixed_peer(i) ^ han_fixed_peer(j)) |
                     (han_is_counted(i) ? 0 : i->n ^ j->n);
    for (int ref = 0; ref < 4; ref++)
        other |= han_fixed_base(i->base[ref]) ^ han_fixed_base(j->base[ref]);
    if (!a.term) return !other;
    const han_term *t = a.term, *u = b.term;
    return !(other | (t->each ^ u->each) | (uint32_t)(t->count ^ u->count) |
             ((t->stop - t->start) ^ (u->stop - u->start)));
}

/* Return what is added to record `a` in record `b`. */
static inline han_stride han_stride_between(han_record a, han_record b) {
    const han_instr *i = a.code, *j = b.code;
    han_stride stride = {.n = j->n - i->n,
                         .task = j->task - i->task,
                         .peer = (int32_t)((uint32_t)j->peer - (uint32_t)i->peer)};
    for (int ref = 0; ref < 4; ref++) {
        stride.off[ref] = j->off[ref] - i->off[ref];
        stride.base[ref] = (uint16_t)(j->base[ref] - i->base[ref]);
    }
    if (!a.term) return stride;
    const han_term *t = a.term, *u = b.term;
    stride.start = u->start - t->start;
    stride.block = (uint32_t)u->block - t->block;
    for (int ref = 0; ref < 4; ref++) {
        stride.offset[ref] = u->offset[ref] - t->offset[ref];
        stride.origin[ref] = u->origin[ref] - t->origin[ref];
        stride.blocks[ref] = (uint16_t)(u->blocks[ref] - t->blocks[ref]);
    }
    return stride;
}

/* Add a stride `times` times to a record, and to its term unless this is NULL. */
static inline void han_add_stride(han_instr *i, han_term *t, const han_stride *stride,
                                  uint64_t times) {
    const uint32_t count = (uint32_t)times;
    i->n += stride->n * times;
    i->task += stride->task * count;
    i->peer = (int32_t)((uint32_t)i->peer + (uint32_t)stride->peer * count);
    for (int ref = 0; ref < 4; ref++) {
        i->off[ref] += stride->off[ref] * times;
        i->base[ref] = (uint16_t)(i->base[ref] + stride->base[ref] * count);
    }
    if (!t) return;
    t->start += stride->start * count;
    t->stop += stride->start * count;
    t->block = (uint16_t)(t->block + stride->block * count);
    for (int ref = 0; ref < 4; ref++) {
        t->offset[ref] += stride->offset[ref] * times;
        t->origin[ref] += stride->origin[ref] * count;
        t->blocks[ref] = (uint16_t)(t->blocks[ref] + stride->blocks[ref] * count);
    }
}

#endif
