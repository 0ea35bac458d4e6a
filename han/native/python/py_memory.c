#include "python/py_memory.h"

#include <stddef.h>

#include "python/py_dlpack.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

/* ---- NumPy -------------------------------------------------------------------------------- */

static bool of_array(const han_elements *known, PyArrayObject *a, han_memory *m) {
    if (!PyArray_IS_C_CONTIGUOUS(a) && !PyArray_IS_F_CONTIGUOUS(a)) return false;
    m->element = PyArray_ISNOTSWAPPED(a)
                     ? han_element_find(known, HAN_BY_ARRAY, (uint64_t)PyArray_TYPE(a))
                     : NULL;
    if (!m->element && PyDataType_REFCHK(PyArray_DESCR(a))) return false;
    m->data = PyArray_DATA(a);
    m->nbytes = (uint64_t)PyArray_NBYTES(a);
    m->readonly = !PyArray_ISWRITEABLE(a);
    m->owner = Py_NewRef((PyObject *)a);
    return true;
}

/* NumPy's classes of numbers, and where their objects hold the value. */
/* clang-format off */
#define SCALARS(ROW)                                                                           \
    ROW(Double, DOUBLE) ROW(Float, FLOAT) ROW(Long, LONG) ROW(Int, INT) ROW(LongLong, LONGLONG) \
    ROW(Bool, BOOL) ROW(Byte, BYTE) ROW(UByte, UBYTE) ROW(Short, SHORT) ROW(UShort, USHORT)    \
    ROW(UInt, UINT) ROW(ULong, ULONG) ROW(ULongLong, ULONGLONG) ROW(Half, HALF)                \
    ROW(LongDouble, LONGDOUBLE) ROW(CFloat, CFLOAT) ROW(CDouble, CDOUBLE)                      \
    ROW(CLongDouble, CLONGDOUBLE)
#define ROW(Name, NAME) \
    {&Py##Name##ArrType_Type, NPY_##NAME, offsetof(Py##Name##ScalarObject, obval), \
     sizeof(((Py##Name##ScalarObject *)NULL)->obval)},
/* clang-format on */

typedef struct {
    PyTypeObject *class;
    int number;
    size_t value, nbytes;
} scalar;

int han_py_scalar(PyObject *o, const void **value, size_t *nbytes) {
    if (!PyArray_IsScalar(o, Generic)) return -1;
    const scalar classes[] = {SCALARS(ROW)};
    for (size_t k = 0; k < sizeof classes / sizeof *classes; k++) {
        if (Py_TYPE(o) != classes[k].class) continue;
        *value = (const uint8_t *)o + classes[k].value;
        *nbytes = classes[k].nbytes;
        return classes[k].number;
    }
    return -1;
}

static bool of_scalar(const han_elements *known, PyObject *o, han_memory *m) {
    const void *value;
    size_t nbytes;
    int number = han_py_scalar(o, &value, &nbytes);
    if (number >= 0) m->element = han_element_find(known, HAN_BY_ARRAY, (uint64_t)number);
    if (number < 0 || !m->element) return false;
    m->data = (uint8_t *)value;
    m->nbytes = nbytes;
    m->readonly = true;
    m->owner = Py_NewRef(o);
    return true;
}

/* ---- buffers of Python -------------------------------------------------------------------- */

static bool of_view(const han_elements *known, PyObject *o, han_memory *m) {
    PyObject *view = PyMemoryView_FromObject(o);
    if (!view) {
        PyErr_Clear();
        return false;
    }
    const Py_buffer *b = PyMemoryView_GET_BUFFER(view);
    if (!PyBuffer_IsContiguous(b, 'A')) {
        Py_DECREF(view);
        return false;
    }
    uint64_t key = han_format_key(b->format ? b->format : "B", b->itemsize);
    m->element = key ? han_element_find(known, HAN_BY_FORMAT, key) : NULL;
    m->data = b->buf;
    m->nbytes = (uint64_t)b->len;
    m->readonly = b->readonly;
    m->owner = view;
    return true;
}

/* ---- tensors ------------------------------------------------------------------------------ */

static struct {
    PyObject *device, *capsule, *names; /* the methods; the names of two arguments of the second */
    PyObject *latest;                   /* the version of DLPack up to which han reads capsules */
} dlpack;

static bool on_host(PyObject *o) {
    PyObject *where = PyObject_CallMethodNoArgs(o, dlpack.device);
    long kind = 0;
    if (where && PyTuple_Check(where) && PyTuple_GET_SIZE(where))
        kind = PyLong_AsLong(PyTuple_GET_ITEM(where, 0));
    Py_XDECREF(where);
    return !PyErr_Occurred() && han_py_is_host(kind);
}

static PyObject *capsule_of(PyObject *o) {
    PyObject *arguments[] = {o, dlpack.latest, Py_False};
    PyObject *capsule = PyObject_VectorcallMethod(dlpack.capsule, arguments, 1, dlpack.names);
    if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError)) return capsule;
    PyErr_Clear(); /* a producer of DLPack before 1.0 */
    return PyObject_CallMethodNoArgs(o, dlpack.capsule);
}

static bool of_capsule(const han_elements *known, PyObject *capsule, han_memory *m) {
    han_tensor t;
    if (han_py_read_tensor(capsule, &t) || !t.contiguous || !t.on_host) return false;
    m->element = han_element_find(known, HAN_BY_TENSOR, han_tensor_key(t.code, t.bits, t.lanes));
    m->data = t.data;
    m->nbytes = t.nbytes;
    m->readonly = t.readonly;
    m->owner = Py_NewRef(capsule);
    return true;
}

/* The class of the tensor that was read last. Its tensors are not asked for their device again, as
 * the capsule tells the device, too. */
static PyTypeObject *last_host_class;

static void remember(PyTypeObject *class) {
    PyTypeObject *before = last_host_class;
    if (before == class) return;
    Py_XINCREF(class);
    last_host_class = class;
    Py_XDECREF(before);
}

static bool of_tensor(const han_elements *known, PyObject *o, han_memory *m) {
    PyTypeObject *class = Py_TYPE(o);
    PyObject *capsule = han_py_export_tensor(o);
    if (!capsule && (class == last_host_class || on_host(o))) capsule = capsule_of(o);
    bool found = capsule && of_capsule(known, capsule, m);
    PyErr_Clear(); /* before what frees the capsule runs */
    Py_XDECREF(capsule);
    if (found)
        remember(class);
    else if (class == last_host_class)
        remember(NULL);
    return found;
}

/* ---- buffers ------------------------------------------------------------------------------ */

static PyObject *source; /* the attribute of a buffer of mpi4py that holds what it was made of */

static bool is_one_of(PyObject *o, PyObject *classes) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(classes); k++)
        if (PyObject_TypeCheck(o, (PyTypeObject *)PyTuple_GET_ITEM(classes, k))) return true;
    return false;
}

/* Whether a buffer object of mpi4py, of `class`, is memory of this process: memory of a device has no
 * slices. */
static bool is_near(PyObject *o, PyObject *class) {
    if (!PyObject_TypeCheck(o, (PyTypeObject *)class)) return true;
    PyObject *from = PyObject_GetAttr(o, source);
    PyObject *none = from && from != Py_None ? PySequence_GetSlice(o, 0, 0) : NULL;
    bool near = from == Py_None || none;
    Py_XDECREF(from);
    Py_XDECREF(none);
    PyErr_Clear();
    return near;
}

bool han_py_memory(const han_elements *known, const han_classes *classes, PyObject *o,
                   han_memory *m) {
    if (PyArray_CheckExact(o)) return of_array(known, (PyArrayObject *)o, m);
    if (o == Py_None) return false;
    if (of_scalar(known, o, m)) return true;
    if (PyArray_Check(o)) return of_array(known, (PyArrayObject *)o, m);
    if (PyObject_CheckBuffer(o))
        return !is_one_of(o, classes->refused) && is_near(o, classes->buffer) &&
               of_view(known, o, m);
    return of_tensor(known, o, m);
}

int han_py_open_memory(void) {
    import_array1(-1);
    source = PyUnicode_InternFromString("obj");
    dlpack.device = PyUnicode_InternFromString("__dlpack_device__");
    dlpack.capsule = PyUnicode_InternFromString("__dlpack__");
    dlpack.names = Py_BuildValue("(ss)", "max_version", "copy");
    dlpack.latest = Py_BuildValue("(ii)", 1, 0);
    return source && dlpack.device && dlpack.capsule && dlpack.names && dlpack.latest ? 0 : -1;
}
