/* Addresses in programs under construction: han._native.Ref. */
#ifndef HAN_PY_REF_H
#define HAN_PY_REF_H

#include "python/module.h"
#include <stdbool.h>
#include <stdint.h>

/* `offset` bytes from a base, behind `blocks` whole messages. Memory that holds a part of the
 * message has its byte `origin` at that offset. The address is that of the message's byte `at`. */
typedef struct {
    PyObject_HEAD
    uint64_t base, offset, at, origin, blocks;
} RefObject;

/* The offset from the base for a message of `nbytes` bytes. */
static inline uint64_t han_ref_start(const RefObject *ref, uint64_t nbytes) {
    return ref->offset + ref->blocks * nbytes + ref->at - ref->origin;
}

static inline bool han_ref_same(const RefObject *a, const RefObject *b) {
    return a->base == b->base && a->offset == b->offset && a->at == b->at &&
           a->origin == b->origin && a->blocks == b->blocks;
}

/* The address of the message's byte `at` in the same memory. */
static inline RefObject han_ref_at(const RefObject *ref, uint64_t at) {
    RefObject found = *ref;
    found.at = at;
    return found;
}

/* An argument that must be an address, borrowed; NULL with a TypeError. */
const RefObject *han_ref_of(PyObject *argument);

/* An argument that must be an integer of 0 or more; 0 or -1 with an error. */
int han_number_of(PyObject *argument, uint64_t *number);

enum { HAN_NO_BLOCK = UINT32_MAX };

/* The keyword arguments of an operation: which block it moves, or how many from this one on; a
 * second result; where a peer has stored how far to read from; where the bytes of a message
 * are told; and the number without which there is none. */
typedef struct {
    uint32_t block, count;
    uint32_t above, upto; /* in a program for own sizes: of more and of at most so many bytes */
    const RefObject *also, *from, *told, *some; /* or NULL */
} han_options;

/* 0, or -1 with a TypeError for a wrong number of arguments of the operation `name`. */
int han_expect(const char *name, Py_ssize_t given, Py_ssize_t expected);
/* 0, or -1 with an error unless an argument is a tuple of `n` objects; a negative `n`: of any. */
int han_expect_tuple(const char *name, PyObject *argument, Py_ssize_t n);
/* Read a tuple of `n` integers of 0 or more. 0 or -1. */
int han_numbers_of(const char *name, PyObject *argument, uint64_t *numbers, int n);
/* Read arguments: addresses, then integers of 0 or more. 0 or -1. */
int han_take(const char *name, PyObject *const *args, Py_ssize_t given, const RefObject **refs,
             int n_refs, uint64_t *numbers, int n_numbers);
/* Read keyword arguments, which follow the `given` others. 0 or -1. */
int han_take_options(const char *name, PyObject *const *args, Py_ssize_t given, PyObject *names,
                     han_options *out);

#endif
