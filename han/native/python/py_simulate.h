/* The function of han._native that simulates programs (tasks/simulate). */
#ifndef HAN_PY_SIMULATE_H
#define HAN_PY_SIMULATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *han_py_simulate(PyObject *self, PyObject *args);

#endif
