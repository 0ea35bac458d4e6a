/* Methods of han._native.Operations that emit many operations at once. */
#ifndef HAN_PY_BATCHES_H
#define HAN_PY_BATCHES_H

#include "python/py_emit.h"

typedef PyObject *han_method(OperationsObject *, PyObject *const *args, Py_ssize_t given);

han_method han_wait_each, han_again, han_show_each, han_take_each, han_fold_each;

#endif
