/* han._native.rolled, period and repeated: the loops of programs. */
#ifndef HAN_PY_ROLLED_H
#define HAN_PY_ROLLED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add the functions to a module; 0 or -1. */
int han_py_add_rolled(PyObject *module);

#endif
