/* Methods of han._native.Operations that emit many operations at once. */
#ifndef HAN_PY_BATCHES_H
#define HAN_PY_BATCHES_H

#include "python/py_emit.h"

typedef PyObject *han_method(OperationsObject *, PyObject *const *args, Py_ssize_t given);

han_method han_wait_each, han_again, han_show_each, han_take_each, han_fold_each;

/* Wait for the flag of each rank, of two tuples; 0 or -1. */
int han_emit_waits(OperationsObject *self, PyObject *flags, PyObject *ranks, uint64_t k);
/* Combine this rank's operand `own` with those in a tuple of cells, which hold the same part of the
 * message as `dst`. `how` says the place of its own, the order, places for partial results (none:
 * `dst`), and flags and ranks, each of which has to reach `k` first. 0 or -1. */
int han_emit_fold(OperationsObject *self, const RefObject *dst, const RefObject *own,
                  PyObject *cells, PyObject *const how[5], uint64_t k, uint64_t nbytes);

#endif
