/* han._native.check_program: the check of programs that were read from a file. */
#ifndef HAN_PY_PROGRAM_CHECK_H
#define HAN_PY_PROGRAM_CHECK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Return None, or NULL with a ValueError if a program does not access only its own memory. */
PyObject *han_py_check_program(PyObject *module, PyObject *args, PyObject *kwargs);

#endif
