/* han._native.Calls: the look-up of plans for calls in every spelling. */
#ifndef HAN_PY_CALLS_H
#define HAN_PY_CALLS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add the type to the module. 0 or -1. */
int han_py_add_calls(PyObject *module);

#endif
