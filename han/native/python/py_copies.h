/* The copy in which a call receives what it cannot receive where it is to be. */
#ifndef HAN_PY_COPIES_H
#define HAN_PY_COPIES_H

#include "python/py_arguments.h"

/* The bytes of a copy. */
size_t han_copy_bytes(const han_caller *, const han_call *);
/* Make the call that receives in a copy, in memory of so many bytes, and pack there what is sent packed, as
 * by the root of a broadcast: 0, or what MPI says; -1: blocks are not found to be apart. */
int han_copy_lay_out(const han_caller *, const han_call *, void *memory, han_call *copy);
/* Deliver the result, unless this is the root of a broadcast: 0, or what MPI says. */
int han_copy_deliver(const han_caller *, const han_call *, const han_call *copy);

/* Whether the types of a C program's blocks are needed until then: not all are told by grids. */
bool han_copy_needs_types(const han_caller *, const han_call *);

/* The same for Python: a copy as a new bytes object; NULL, without an exception, if there is no memory, MPI
 * cannot pack, or blocks are not found to be apart. */
PyObject *han_py_copy(const han_caller *, const han_call *, han_call *copy);
/* And a delivery: 0, or -1 with an exception: MPI refuses a type that was freed meanwhile. */
int han_py_deliver(const han_caller *, const han_call *, const han_call *copy);

#endif
