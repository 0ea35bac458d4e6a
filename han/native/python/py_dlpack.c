/* The structures are those of dlpack.h, version 1. A capsule is read, not consumed: the caller
 * keeps it, and with it the tensor, as long as it uses the memory. */
#include "python/py_dlpack.h"

enum { READ_ONLY = 1, CPU = 1, CUDA_HOST = 3, ROCM_HOST = 11 };

static const char VERSIONED[] = "dltensor_versioned";

typedef struct {
    void *data;
    int32_t device_type, device;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements; strides may be NULL: C order */
    uint64_t byte_offset;
} tensor;

typedef struct {
    tensor tensor;
    void *context;
    void (*deleter)(void *);
} legacy;

typedef struct versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct versioned *);
    uint64_t flags;
    tensor tensor;
} versioned;

/* The tensor of a capsule, or NULL with an exception. */
static const tensor *tensor_of(PyObject *capsule, bool *readonly) {
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        const legacy *found = PyCapsule_GetPointer(capsule, "dltensor");
        *readonly = false; /* a legacy capsule cannot say so */
        return &found->tensor;
    }
    if (!PyCapsule_IsValid(capsule, VERSIONED)) {
        PyErr_SetString(PyExc_BufferError, "no DLPack capsule, or one that was used before");
        return NULL;
    }
    const versioned *found = PyCapsule_GetPointer(capsule, VERSIONED);
    if (found->major != 1) {
        PyErr_Format(PyExc_BufferError, "a capsule of DLPack %u, 1 expected", found->major);
        return NULL;
    }
    *readonly = found->flags & READ_ONLY;
    return &found->tensor;
}

/* Whether the elements follow each other in one of the two orders of dimensions. */
static bool ordered(const tensor *t, bool fortran) {
    int64_t step = 1;
    for (int32_t k = 0; k < t->ndim; k++) {
        int32_t d = fortran ? k : t->ndim - 1 - k;
        if (t->shape[d] > 1 && t->strides[d] != step) return false;
        step *= t->shape[d];
    }
    return true;
}

/* The number of elements; -1 with an exception if the shape makes no sense. */
static int64_t elements(const tensor *t) {
    int64_t count = 1;
    bool sound = t->ndim >= 0 && (!t->ndim || t->shape);
    for (int32_t k = 0; sound && k < t->ndim; k++)
        sound = t->shape[k] >= 0 && !__builtin_mul_overflow(count, t->shape[k], &count);
    if (sound) return count;
    PyErr_SetString(PyExc_BufferError, "the shape of the tensor is damaged");
    return -1;
}

bool han_py_is_host(long device_type) {
    return device_type == CPU || device_type == CUDA_HOST || device_type == ROCM_HOST;
}

int han_py_read_tensor(PyObject *capsule, han_tensor *out) {
    bool readonly = false;
    const tensor *t = tensor_of(capsule, &readonly);
    if (!t) return -1;
    int64_t count = elements(t), nbytes;
    if (count < 0) return -1;
    int64_t element = ((int64_t)t->bits * t->lanes + 7) / 8;
    if (__builtin_mul_overflow(count, element, &nbytes)) {
        PyErr_SetString(PyExc_BufferError, "the tensor has too many elements");
        return -1;
    }
    *out = (han_tensor){
        .data = (uint8_t *)((uintptr_t)t->data + t->byte_offset),
        .nbytes = (uint64_t)nbytes,
        .code = t->code,
        .bits = t->bits,
        .lanes = t->lanes,
        .readonly = readonly,
        .on_host = han_py_is_host(t->device_type),
        .contiguous = !count || !t->strides || ordered(t, false) || ordered(t, true),
    };
    return 0;
}

/* ---- module ---------------------------------------------------------------------------------- */

static PyObject *read_dlpack(PyObject *self, PyObject *capsule) {
    (void)self;
    han_tensor t;
    if (han_py_read_tensor(capsule, &t)) return NULL;
    return Py_BuildValue("(KKiiiNN)", (unsigned long long)(uintptr_t)t.data,
                         (unsigned long long)t.nbytes, (int)t.code, (int)t.bits, (int)t.lanes,
                         PyBool_FromLong(t.readonly), PyBool_FromLong(t.contiguous));
}

PyMethodDef han_dlpack_functions[] = {
    {"read_dlpack", read_dlpack, METH_O,
     "read_dlpack($module, capsule, /)\n--\n\n"
     "Return address, bytes, type code, bits, lanes, read-only and contiguous of a DLPack "
     "capsule;\n"
     "raises BufferError. The capsule is not consumed."},
    {NULL, NULL, 0, NULL},
};
