/* Reads DLPack capsules, which describe the memory of tensors. */
#ifndef HAN_PY_DLPACK_H
#define HAN_PY_DLPACK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint8_t *data;
    uint64_t nbytes;
    uint8_t code, bits; /* the type of the elements */
    uint16_t lanes;
    bool readonly, contiguous;
} han_tensor;

/* Read the tensor of a capsule, which the caller keeps. 0, or -1 with an exception. */
int han_py_read_tensor(PyObject *capsule, han_tensor *);
int han_py_add_dlpack(PyObject *module);

#endif
