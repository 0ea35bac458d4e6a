/* The memory of an object: a NumPy array or scalar, an object with a buffer of Python, a tensor on
 * the host. As han/message/memory.py finds it. */
#ifndef HAN_PY_MEMORY_H
#define HAN_PY_MEMORY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "python/elements.h"

typedef struct {
    uint8_t *data;
    uint64_t nbytes;
    const han_element *element; /* NULL: not known */
    PyObject *owner;            /* keeps the memory; a new reference */
    bool readonly;
} han_memory;

/* Classes of mpi4py: a tuple of those whose buffers are no memory, and one whose buffers may be memory
 * of a device. */
typedef struct {
    PyObject *refused, *buffer;
} han_classes;

/* False, without an exception, if the object is not one of these or its memory has gaps. */
bool han_py_memory(const han_elements *, const han_classes *, PyObject *, han_memory *);

/* Return the number of the NumPy type of a scalar, and where its value is; -1: no scalar of a number. */
int han_py_scalar(PyObject *, const void **value, size_t *nbytes);
int han_py_open_memory(void);

#endif
