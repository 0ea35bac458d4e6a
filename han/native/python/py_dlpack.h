/* Reads DLPack capsules, which describe the memory of tensors, and makes them without a call of Python
 * where a class has a table of functions for it (DLPack 1.3). */
#ifndef HAN_PY_DLPACK_H
#define HAN_PY_DLPACK_H

#include "python/module.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint8_t *data;
    uint64_t nbytes;
    uint8_t code, bits; /* the type of the elements */
    uint16_t lanes;
    bool readonly, contiguous, on_host;
} han_tensor;

/* Read the tensor of a capsule, which the caller keeps. 0, or -1 with an exception. */
int han_py_read_tensor(PyObject *capsule, han_tensor *);
/* Return a capsule of an object of a class that declares `__dlpack_c_exchange_api__`; NULL, without an
 * exception, if its methods are to be asked. */
PyObject *han_py_export_tensor(PyObject *);
/* Whether DLPack's device type has memory of the host. */
bool han_py_is_host(long device_type);

#endif
