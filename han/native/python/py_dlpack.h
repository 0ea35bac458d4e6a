/* Reads DLPack capsules, which describe the memory of tensors. */
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
/* Whether DLPack's device type has memory of the host. */
bool han_py_is_host(long device_type);

#endif
