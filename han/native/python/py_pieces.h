/* A method of han._native.Operations for tasks whose pieces go through cells. */
#ifndef HAN_PY_PIECES_H
#define HAN_PY_PIECES_H

#include "python/py_emit.h"

/* pass_pieces(dst, own, operands, turns, step, index, arrivals, reads, posts) */
PyObject *han_pass_pieces(OperationsObject *self, PyObject *const *args, Py_ssize_t given);

#endif
