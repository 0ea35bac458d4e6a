#include "python/py_memory.h"

#include "python/py_dlpack.h"

#include <numpy/arrayscalars.h>

/* ---- NumPy -------------------------------------------------------------------------------- */

static bool of_array(const han_elements *known, PyArrayObject *a, han_buffer *b) {
    if (!PyArray_IS_C_CONTIGUOUS(a) && !PyArray_IS_F_CONTIGUOUS(a)) return false;
    b->element = PyArray_ISNOTSWAPPED(a)
                     ? han_element_find(known, HAN_BY_ARRAY, (uint64_t)PyArray_TYPE(a))
                     : NULL;
    if (!b->element && PyDataType_REFCHK(PyArray_DESCR(a))) return false;
    b->data = PyArray_DATA(a);
    b->nbytes = (uint64_t)PyArray_NBYTES(a);
    b->readonly = !PyArray_ISWRITEABLE(a);
    b->owner = Py_NewRef((PyObject *)a);
    return true;
}

/* Other scalars are read as buffers of Python. */
static bool of_double(const han_elements *known, PyObject *o, han_buffer *b) {
    b->element = han_element_find(known, HAN_BY_ARRAY, NPY_DOUBLE);
    b->data = (uint8_t *)&PyArrayScalar_VAL(o, Double);
    b->nbytes = sizeof(double);
    b->readonly = true;
    b->owner = Py_NewRef(o);
    return true;
}

/* ---- buffers of Python -------------------------------------------------------------------- */

static bool of_view(const han_elements *known, PyObject *o, han_buffer *b) {
    PyObject *view = PyMemoryView_FromObject(o);
    if (!view) {
        PyErr_Clear();
        return false;
    }
    const Py_buffer *v = PyMemoryView_GET_BUFFER(view);
    if (!PyBuffer_IsContiguous(v, 'A')) {
        Py_DECREF(view);
        return false;
    }
    uint64_t key = han_text_key(v->format ? v->format : "B", v->itemsize);
    b->element = key ? han_element_find(known, HAN_BY_FORMAT, key) : NULL;
    b->data = v->buf;
    b->nbytes = (uint64_t)v->len;
    b->readonly = v->readonly;
    b->owner = view;
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

static bool of_capsule(const han_elements *known, PyObject *capsule, han_buffer *b) {
    han_tensor t;
    if (han_py_read_tensor(capsule, &t) || !t.contiguous || !t.on_host) return false;
    b->element = han_element_find(known, HAN_BY_TENSOR, han_tensor_key(t.code, t.bits, t.lanes));
    b->data = t.data;
    b->nbytes = t.nbytes;
    b->readonly = t.readonly;
    b->owner = Py_NewRef(capsule);
    return true;
}

static bool of_tensor(const han_elements *known, PyObject *o, han_buffer *b) {
    PyObject *capsule = han_py_export_tensor(o);
    if (!capsule && on_host(o)) capsule = capsule_of(o);
    bool found = capsule && of_capsule(known, capsule, b);
    PyErr_Clear(); /* before what frees the capsule runs */
    Py_XDECREF(capsule);
    return found;
}

/* ---- buffers ------------------------------------------------------------------------------ */

static PyObject *source; /* the attribute of an MPI.buffer that holds what it was made from */

static bool is_one_of(PyObject *o, PyObject *classes) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(classes); k++)
        if (PyObject_TypeCheck(o, (PyTypeObject *)PyTuple_GET_ITEM(classes, k))) return true;
    return false;
}

/* Whether an MPI.buffer was made from another object, whose memory may be that of a device. */
static bool is_lent(PyObject *o, PyObject *class) {
    if (!PyObject_TypeCheck(o, (PyTypeObject *)class)) return false;
    PyObject *from = PyObject_GetAttr(o, source);
    Py_XDECREF(from);
    PyErr_Clear();
    return from != Py_None;
}

bool han_py_memory(const han_elements *known, const han_classes *classes, PyObject *o,
                   han_buffer *b) {
    if (PyArray_Check(o)) return of_array(known, (PyArrayObject *)o, b);
    if (Py_TYPE(o) == &PyDoubleArrType_Type) return of_double(known, o, b);
    if (o == Py_None || is_one_of(o, classes->refused) || is_lent(o, classes->buffer)) return false;
    return PyObject_CheckBuffer(o) ? of_view(known, o, b) : of_tensor(known, o, b);
}

int han_py_open_memory(void) {
    source = PyUnicode_InternFromString("obj");
    dlpack.device = PyUnicode_InternFromString("__dlpack_device__");
    dlpack.capsule = PyUnicode_InternFromString("__dlpack__");
    dlpack.names = Py_BuildValue("(ss)", "max_version", "copy");
    dlpack.latest = Py_BuildValue("(ii)", 1, 0);
    return source && dlpack.device && dlpack.capsule && dlpack.names && dlpack.latest ? 0 : -1;
}
