/* The operations of a ring of nodes (han/submodules/ring.py). */
#ifndef HAN_PY_RING_H
#define HAN_PY_RING_H

#include "python/py_emit.h"

/* circulate(source, result, cells, peers, pieces, width, awaits, free, first) */
PyObject *han_circulate(OperationsObject *self, PyObject *const *args, Py_ssize_t given);

#endif
