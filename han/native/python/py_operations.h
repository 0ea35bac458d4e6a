/* The operations of a stream under construction: han._native.Operations. */
#ifndef HAN_PY_OPERATIONS_H
#define HAN_PY_OPERATIONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* Whether an object is a stream under construction. */
bool han_is_operations(PyObject *object);

/* Add Ref and Operations to the module. 0 or -1. */
int han_py_add_operations(PyObject *module);

#endif
