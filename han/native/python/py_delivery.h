/* What delivers the result of a nonblocking call that receives in a copy. */
#ifndef HAN_PY_DELIVERY_H
#define HAN_PY_DELIVERY_H

#include "python/py_copies.h"

/* Make a function without arguments that delivers the result of a call; `calls` is the object that the
 * caller is part of. It takes over what the call holds, which is all zero then, and a reference to the
 * memory of the copy. NULL with an exception, in which case the call keeps what it holds. */
PyObject *han_py_delivery(PyObject *calls, const han_caller *, han_call *, const han_call *copy,
                          PyObject *memory);

#endif
