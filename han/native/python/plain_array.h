/* NumPy arrays that need no conversion: contiguous numbers in native byte order. A file that
 * includes this must import NumPy's table of functions. */
#ifndef HAN_PLAIN_ARRAY_H
#define HAN_PLAIN_ARRAY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

typedef struct {
    uint8_t *data;
    uint64_t nbytes;
    int dtype;
} array;

/* Whether an object is such an array, and where its data is. */
static inline bool plain(PyObject *o, array *out) {
    if (!PyArray_CheckExact(o)) return false;
    PyArrayObject *a = (PyArrayObject *)o;
    int type = PyArray_TYPE(a);
    if (!(PyTypeNum_ISNUMBER(type) || type == NPY_BOOL) || !PyArray_ISNOTSWAPPED(a)) return false;
    if (!PyArray_IS_C_CONTIGUOUS(a) && !PyArray_IS_F_CONTIGUOUS(a)) return false;
    out->data = PyArray_DATA(a);
    out->nbytes = (uint64_t)PyArray_NBYTES(a);
    out->dtype = type;
    return true;
}

static inline bool plain_writable(PyObject *o, array *out) {
    return plain(o, out) && PyArray_ISWRITEABLE((PyArrayObject *)o);
}

static inline bool apart(const array *a, const array *b) {
    return a->data + a->nbytes <= b->data || b->data + b->nbytes <= a->data;
}

static inline bool alike(const array *a, const array *b) {
    return a->nbytes == b->nbytes && a->dtype == b->dtype && apart(a, b);
}

/* Divide an array into a block for each of `size` ranks; false if the blocks are not whole
 * elements. */
static inline bool block_of(int32_t size, PyObject *o, const array *a, uint64_t *nbytes) {
    uint64_t parts = (uint64_t)size * (uint64_t)PyArray_ITEMSIZE((PyArrayObject *)o);
    *nbytes = a->nbytes / (uint64_t)size;
    return parts && a->nbytes % parts == 0;
}

/* Whether an argument says MPI.IN_PLACE; mpi4py takes None for it. */
static inline bool says(const PyObject *in_place, const PyObject *o) {
    return o == in_place || o == Py_None;
}

#endif
