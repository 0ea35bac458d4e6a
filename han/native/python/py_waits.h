/* Flags of several ranks, and the operands that these bring. */
#ifndef HAN_PY_WAITS_H
#define HAN_PY_WAITS_H

#include "python/py_emit.h"

/* Flags of several ranks that are to reach one value. */
typedef struct {
    PyObject *flags, *ranks; /* tuples of Ref and int; borrowed; NULL: nothing to wait for */
    uint64_t k;
    Py_ssize_t n;
} waits;

/* Wait for the flag of one of the ranks; 0 or -1. */
int han_wait_one(OperationsObject *self, const waits *all, Py_ssize_t number);

/* Combine an operand of this rank, if there is one, with those of the members, into `dst`; wait for
 * the flag of each member before. Operands begin with the part of the message that is combined, as
 * `dst` does. 0 or -1. */
int han_combine_members(OperationsObject *self, const RefObject *dst, const RefObject *own,
                        PyObject *operands, uint64_t nbytes, const waits *members);

#endif
