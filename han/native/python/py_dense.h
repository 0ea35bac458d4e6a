/* Derived types of C programs whose elements are bytes without gaps, in their order. Calls that combine
 * nothing move such elements as bytes. */
#ifndef HAN_PY_DENSE_H
#define HAN_PY_DENSE_H

#include "mpi_table.h"
#include "python/elements.h"

/* The elements of a type that was learnt, or NULL. Needs no lock. */
const han_element *han_dense_find(han_handle type);
/* Look into a type once, with the lock of the interpreter, which is released meanwhile. */
void han_dense_learn(const han_mpi *, han_handle type);
/* The program frees a type: MPI may give its handle to another one. Needs no lock. */
void han_dense_forget(han_handle type);

#endif
