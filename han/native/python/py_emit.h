/* The records of a stream under construction. */
#ifndef HAN_PY_EMIT_H
#define HAN_PY_EMIT_H

#include "python/module.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan.h"
#include "program.h"
#include "python/py_ref.h"

/* An operation to be written. What it moves begins at the message's byte `at`, or at that of block
 * `block` where blocks differ in size. `n` counts things of `each` bytes of the message; 0: it does
 * not depend on the message's size. If `count` is not 0, it moves so many whole blocks, from `block` on. `numbers` take the place of the
 * last two offsets. In a program for own sizes it is meant for a block of more than `above` and at
 * most `upto` bytes; 0: of any size. `from` is where a peer has stored how far to read from. */
typedef struct {
    enum han_code code;
    const RefObject *refs[4];
    uint64_t numbers[2];
    uint64_t n, each, at, slot;
    uint32_t block, count, above, upto;
    const RefObject *from;
    int32_t peer;
} operation;

/* What tests a request. `told` is a copy of its only operand, if it has one. */
typedef struct {
    operation op;
    RefObject told;
} request_test;

typedef struct {
    PyObject_HEAD
    han_instr *code;
    han_term *terms; /* NULL: the program is for one size */
    size_t length, room;
    request_test *tests; /* by request */
    size_t n_tests;
    uint64_t nbytes, element; /* of the message */
    uint64_t grain, grains;
    int grain_bits;   /* a grain is so many binary digits of a byte's number; -1: no power of two */
    uint64_t operand; /* most bytes that one operation combines */
    uint64_t awaited[HAN_MAX_STREAMS]; /* of other streams: so many operations */
    bool uneven; /* blocks differ in size: operations name the block that they move */
    bool own;    /* for own sizes: they name the block, or have a constant size */
    bool made;   /* by __init__ */
    unsigned int task;
    uint16_t tag;
    uint8_t writes[HAN_MAX_CHANNELS];
} OperationsObject;

/* Make room for one more record; 0 or -1. Memory that is not written yet costs nothing. */
int han_make_room(OperationsObject *self);

/* Append an operation; 0, or -1 with an error. */
int han_emit(OperationsObject *self, const operation *op);

/* Append the operations of a stream's methods of the same names (py_operations.c); 0 or -1. */
int han_emit_copy(OperationsObject *self, const RefObject *dst, const RefObject *src,
                  uint64_t nbytes, uint32_t block, uint32_t count);
int han_emit_reduce(OperationsObject *self, const RefObject *const refs[4], uint64_t nbytes,
                    uint32_t block); /* dst, a, b, also or NULL */
int han_emit_accumulate(OperationsObject *self, const RefObject *dst, const RefObject *operand,
                        uint64_t nbytes);
int han_emit_wait(OperationsObject *self, const RefObject *flag, uint64_t k, int32_t rank);
int han_emit_post(OperationsObject *self, const RefObject *flag, uint64_t value);
int han_emit_message(OperationsObject *self, enum han_code code, const RefObject *place,
                     const uint64_t number[3], const han_options *more); /* bytes, rank, request */
int han_emit_test(OperationsObject *self, uint64_t request);
/* Wait until another stream has done so many operations, unless this one has waited for that. */
int han_emit_await(OperationsObject *self, uint64_t stream, uint64_t position);

/* A turn of a stream: the number of a task, where it starts and stops, and the streams and positions
 * that it awaits. Begin its operations: label them, and wait. 0 or -1. */
int han_begin_turn(OperationsObject *stream, PyObject *turn);
/* Append where its operations end to a list; 0 or -1. */
int han_end_turn(const OperationsObject *stream, PyObject *ends);

/* The same operation on the block that its options name, for the sizes that they say. */
operation han_named(operation op, const han_options *more);

/* Note how many bytes an operation of MPI may combine. */
static inline void han_combines(OperationsObject *self, uint64_t nbytes) {
    if (nbytes > self->operand) self->operand = nbytes;
}

/* Note which area of a channel this rank writes: a run waits until it is free. */
void han_wrote(OperationsObject *self, const RefObject *ref);

/* Remember what tests a request; 0 or -1. */
int han_note_test(OperationsObject *self, uint64_t request, const operation *test);

/* 0, or -1 with a ValueError for a number that no request, rank or stream has, as `what` says. */
int han_check_small(const char *what, uint64_t number);
/* The number of a rank; 0, or -1 with an error if it is too large. */
int han_rank_of(uint64_t number, int32_t *rank);

#endif
