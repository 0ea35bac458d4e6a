/* Reads DLPack capsules, which describe the memory of tensors. */
#ifndef HAN_PY_DLPACK_H
#define HAN_PY_DLPACK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int han_py_add_dlpack(PyObject *module);

#endif
