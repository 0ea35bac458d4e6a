/* The records of a program's streams, one stream behind the other. */
#ifndef HAN_PY_JOINED_H
#define HAN_PY_JOINED_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add joined() to the module. 0 or -1. */
int han_py_add_joined(PyObject *module);

/* A view of memory from malloc, which it frees at the end, also on failure; NULL with an error. */
PyObject *han_view_of(void *data, size_t nbytes);

#endif
