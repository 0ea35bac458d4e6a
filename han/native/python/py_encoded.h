/* Python objects as bytes. */
#ifndef HAN_PY_ENCODED_H
#define HAN_PY_ENCODED_H

#include "python/module.h"

/* Return bytes that stand for an object; NULL with an exception. */
PyObject *han_py_encode(PyObject *object);
/* Return the object for which the bytes of a buffer stand; no bytes stand for None. */
PyObject *han_py_decode(PyObject *data);

#endif
