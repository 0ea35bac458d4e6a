/* Functions of han._native for arenas. */
#ifndef HAN_PY_ARENA_H
#define HAN_PY_ARENA_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add them to the module. 0 or -1. */
int han_py_add_arena(PyObject *module);

#endif
