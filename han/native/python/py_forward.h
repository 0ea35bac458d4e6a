/* A method of han._native.Operations for pieces that are received and sent on. */
#ifndef HAN_PY_FORWARD_H
#define HAN_PY_FORWARD_H

#include "python/py_emit.h"

/* forward(source, result, parent, children, turns, step, window, first) */
PyObject *han_forward(OperationsObject *self, PyObject *const *args, Py_ssize_t given);

#endif
