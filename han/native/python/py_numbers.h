/* The numbers that C and Python share, as tables of names. */
#ifndef HAN_PY_NUMBERS_H
#define HAN_PY_NUMBERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Add the tables to the module. 0 or -1. */
int han_py_add_numbers(PyObject *module);

#endif
