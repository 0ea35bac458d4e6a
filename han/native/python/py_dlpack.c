/* The structures are those of dlpack.h, version 1. A capsule is read, not consumed: the caller
 * keeps it, and with it the tensor, as long as it uses the memory. */
#include "python/py_dlpack.h"

enum { READ_ONLY = 1, COMPLEX = 5, CPU = 1, CUDA_HOST = 3, ROCM_HOST = 11 };

static const char CAPSULE[] = "dltensor_versioned";

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

typedef struct exchange {
    uint32_t major, minor;
    const struct exchange *previous; /* one of an older major version, or NULL */
    void *allocate;
    int (*export)(PyObject *, versioned **); /* 0, or -1 with an exception */
} exchange;                                  /* functions that follow are not used here */

/* The tensor of a capsule, or NULL with an exception. */
static const tensor *tensor_of(PyObject *capsule, bool *readonly) {
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        const legacy *found = PyCapsule_GetPointer(capsule, "dltensor");
        *readonly = false; /* a legacy capsule cannot say so */
        return &found->tensor;
    }
    if (!PyCapsule_IsValid(capsule, CAPSULE))
        return (void *)PyErr_Format(PyExc_BufferError,
                                    "no DLPack capsule, or one that was used before");
    const versioned *found = PyCapsule_GetPointer(capsule, CAPSULE);
    if (found->major != 1)
        return (void *)PyErr_Format(PyExc_BufferError, "a capsule of DLPack %u, 1 expected",
                                    found->major);
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
    return HAN_RAISE(PyExc_BufferError, "the shape of the tensor is damaged");
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
    if (__builtin_mul_overflow(count, element, &nbytes))
        return HAN_RAISE(PyExc_BufferError, "the tensor has too many elements");
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

/* ---- the table of functions of a class ----------------------------------------------------- */

typedef struct {
    PyTypeObject *class;
    const exchange *table;
    bool has_gradients;
} declaration;

static declaration known; /* of the class that was seen last, which is kept */
static PyObject *requires_grad;

/* The table that a class itself declares; NULL: none, or of an unknown version. A class may override
 * the methods of one whose table it inherits. */
static const exchange *declared(PyTypeObject *class) {
    PyObject *own = PyObject_GetAttrString((PyObject *)class, "__dict__");
    PyObject *capsule = own ? PyMapping_GetItemString(own, "__dlpack_c_exchange_api__") : NULL;
    const exchange *table = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    while (table && table->major != 1) table = table->previous;
    Py_XDECREF(capsule);
    Py_XDECREF(own);
    PyErr_Clear();
    return table;
}

/* A copy: other threads may look at other classes while functions of this one run. */
static declaration declaration_of(PyTypeObject *class) {
    if (class == known.class) return known;
    declaration found = {class, declared(class), false};
    found.has_gradients = found.table && PyObject_HasAttr((PyObject *)class, requires_grad);
    PyTypeObject *before = known.class;
    Py_INCREF(class);
    known = found;
    Py_XDECREF(before);
    return found;
}

/* A capsule may be freed while an exception is on its way. */
static void release(PyObject *capsule) {
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    versioned *shown = PyCapsule_GetPointer(capsule, CAPSULE);
    if (shown && shown->deleter) shown->deleter(shown);
    PyErr_Clear();
    PyErr_Restore(kind, value, trace);
}

/* Whether the methods of the object are to decide. They refuse tensors that need gradients, and such
 * whose memory holds the conjugates of their elements; the table's function of PyTorch does not. */
static bool needs_methods(PyObject *o, const versioned *shown, bool has_gradients) {
    if (shown->major != 1 || shown->tensor.code == COMPLEX) return true;
    if (!has_gradients) return false;
    PyObject *needs = PyObject_GetAttr(o, requires_grad);
    bool plain = needs == Py_False;
    Py_XDECREF(needs);
    PyErr_Clear();
    return !plain;
}

PyObject *han_py_export_tensor(PyObject *o) {
    declaration by = declaration_of(Py_TYPE(o));
    versioned *shown = NULL;
    if (!by.table || by.table->export(o, &shown) || !shown) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(shown, CAPSULE, release);
    if (!capsule && shown->deleter) shown->deleter(shown);
    if (capsule && needs_methods(o, shown, by.has_gradients)) Py_CLEAR(capsule);
    PyErr_Clear();
    return capsule;
}

/* ---- module ---------------------------------------------------------------------------------- */

static PyObject *read_dlpack(PyObject *Py_UNUSED(module), PyObject *capsule) {
    han_tensor t;
    if (han_py_read_tensor(capsule, &t)) return NULL;
    return Py_BuildValue("(KKiiiNN)", (unsigned long long)(uintptr_t)t.data,
                         (unsigned long long)t.nbytes, (int)t.code, (int)t.bits, (int)t.lanes,
                         PyBool_FromLong(t.readonly), PyBool_FromLong(t.contiguous));
}

PyMethodDef han_dlpack_functions[] = {
    HAN_METHOD("read_dlpack", read_dlpack, METH_O, "$module, capsule, /",
               "Return address, bytes, type code, bits, lanes, read-only and contiguous of a "
               "DLPack capsule;\nraises BufferError. The capsule is not consumed."),
    {NULL, NULL, 0, NULL},
};

int han_py_open_dlpack(void) {
    requires_grad = PyUnicode_InternFromString("requires_grad");
    return requires_grad ? 0 : -1;
}
