/* Methods of han._native.Operations for pieces that are received, combined and sent on. */
#ifndef HAN_PY_FORWARD_H
#define HAN_PY_FORWARD_H

#include "python/py_emit.h"

/* forward(source, result, parent, children, turns, step, window, first) */
PyObject *han_forward(OperationsObject *self, PyObject *const *args, Py_ssize_t given);

/* combine_pieces(dst, own, children, parent, turns, step, window, stride, first) */
PyObject *han_combine_pieces(OperationsObject *self, PyObject *const *args, Py_ssize_t given);

#endif
