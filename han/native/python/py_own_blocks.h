/* Reads the arguments of calls in which a rank knows the sizes of its own blocks only. */
#ifndef HAN_PY_OWN_BLOCKS_H
#define HAN_PY_OWN_BLOCKS_H

#include "python/py_arguments.h"

bool han_read_gatherv(const han_caller *, PyObject *const *args, han_call *);
bool han_read_scatterv(const han_caller *, PyObject *const *args, han_call *);
bool han_read_alltoallv(const han_caller *, PyObject *const *args, han_call *);
bool han_read_alltoallw(const han_caller *, PyObject *const *args, han_call *);
/* The neighbours of this rank, send, recv. */
bool han_read_neighbours(const han_caller *, PyObject *const *args, han_call *);

#endif
