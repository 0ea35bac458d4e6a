/* Methods of han._native.Operations that emit many operations at once. */
#ifndef HAN_PY_BATCHES_H
#define HAN_PY_BATCHES_H

#include "python/py_emit.h"

/* wait_each(flags, k, ranks) */
PyObject *han_wait_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given);
/* again(first, second, n, times, turns) */
PyObject *han_again(OperationsObject *self, PyObject *const *args, Py_ssize_t given);
/* show_each(cells, offset, src, bounds, part) */
PyObject *han_show_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given);
/* take_each(dst, cells, offset, bounds, part, flags, k, ranks) */
PyObject *han_take_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given);
/* fold_each(dst, operands, mine, start, nbytes, order, partials, waits, also, block=None) */
PyObject *han_fold_each(OperationsObject *self, PyObject *const *args, Py_ssize_t given);

#endif
