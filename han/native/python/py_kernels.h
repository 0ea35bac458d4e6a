/* Functions of han._native that only copy or only reduce, which `han limits` measures. */
#ifndef HAN_PY_KERNELS_H
#define HAN_PY_KERNELS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add them to the module. 0 or -1. */
int han_py_add_kernels(PyObject *module);

#endif
