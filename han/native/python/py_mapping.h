/* Functions of han._native that map memory of other processes. */
#ifndef HAN_PY_MAPPING_H
#define HAN_PY_MAPPING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add them to the module. 0 or -1. */
int han_py_add_mapping(PyObject *module);

#endif
