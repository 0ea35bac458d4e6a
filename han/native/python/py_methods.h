/* Entries of the tables of methods that take their arguments as an array. */
#ifndef HAN_PY_METHODS_H
#define HAN_PY_METHODS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define HAN_FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL
#define HAN_FAST_NAMED(function) \
    (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

#endif
