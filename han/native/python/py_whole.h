/* Reads whole numbers of every object that mpi4py takes them from. No function raises: what is no
 * such number is refused. */
#ifndef HAN_PY_WHOLE_H
#define HAN_PY_WHOLE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* Read an int, or another object with `__index__`, that is not negative and fits 63 bits. */
bool han_py_whole(PyObject *, uint64_t *);
/* Whether an object is one number, and no list of numbers. */
bool han_py_is_number(PyObject *);
/* Read `n` numbers, which may be negative, of an array or a buffer of integers, a list, or another
 * sequence. */
bool han_py_integers(PyObject *, int32_t n, int64_t *);

int han_py_open_whole(void);

#endif
