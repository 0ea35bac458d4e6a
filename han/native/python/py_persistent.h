/* Persistent requests of calls whose class is known. */
#ifndef HAN_PY_PERSISTENT_H
#define HAN_PY_PERSISTENT_H

#include "python/py_arguments.h"

/* Let `make`, a function of Python, make a request for a call; False if the arguments must be parsed,
 * NULL with an exception. */
PyObject *han_py_persistent(const han_caller *, PyObject *make, const han_call *);

#endif
