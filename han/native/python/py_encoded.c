/* Pickling takes microseconds for a NumPy array or scalar. Those of numbers are encoded as a head and
 * their memory here; all other objects are pickled by mpi4py's MPI.pickle. If a program gave it
 * functions of its own, these get all objects. */
#include "python/module.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { SCALAR = -1, MOST_DIMENSIONS = 32 };

static const char MAGIC[4] = {'\0', 'h', 'a', 'n'}; /* no pickle begins with a zero */

typedef struct {
    char magic[sizeof MAGIC];
    int8_t number;     /* of the NumPy type */
    int8_t dimensions; /* whose lengths follow, in 64 bits each; or SCALAR */
    int8_t fortran;    /* 1: the first dimension runs fastest */
    int8_t unused;
} head;

static struct {
    PyObject *pickle, *dumps, *loads; /* MPI.pickle, and the functions that it has by default */
    PyObject *reducers; /* by class, which pickle asks first: a program may add some */
    PyObject *dumps_name, *loads_name;
} mpi4py;

typedef struct {
    bool dumps, loads;
} seen;

static int look(PyObject *part, void *found) {
    ((seen *)found)->dumps |= part == mpi4py.dumps;
    ((seen *)found)->loads |= part == mpi4py.loads;
    return 0;
}

/* Whether MPI.pickle has its default functions, as its references tell the garbage collector, and no
 * function of a program reduces this class. */
static bool pickles_by_default(PyObject *o) {
    if (!mpi4py.pickle) return false;
    seen found = {false, false};
    traverseproc traverse = Py_TYPE(mpi4py.pickle)->tp_traverse;
    return traverse && !traverse(mpi4py.pickle, look, &found) && found.dumps && found.loads &&
           !PyDict_Contains(mpi4py.reducers, (PyObject *)Py_TYPE(o));
}

/* Whether it is one of NumPy's numbers whose type unpickling keeps. */
static bool is_number(int type) {
    if (type == NPY_LONGLONG || type == NPY_ULONGLONG) return false;
    return (type >= NPY_BOOL && type <= NPY_CLONGDOUBLE) || type == NPY_HALF;
}

static PyObject *by_pickle(PyObject *method, PyObject *argument) {
    if (mpi4py.pickle) return PyObject_CallMethodOneArg(mpi4py.pickle, method, argument);
    return PyErr_Format(PyExc_RuntimeError,
                        "learn_pickle was not called: import han.object_moves first");
}

/* ---- encoding -------------------------------------------------------------------------------- */

static PyObject *encoded(head h, const npy_intp *lengths, const void *data, size_t nbytes) {
    size_t shape = h.dimensions > 0 ? (size_t)h.dimensions * sizeof(int64_t) : 0;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(sizeof h + shape + nbytes));
    if (!bytes) return NULL;
    char *to = PyBytes_AS_STRING(bytes);
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    memcpy(to, &h, sizeof h);
    for (int8_t k = 0; k < h.dimensions; k++) {
        int64_t length = lengths[k];
        memcpy(to + sizeof h + (size_t)k * sizeof length, &length, sizeof length);
    }
    if (nbytes) memcpy(to + sizeof h + shape, data, nbytes);
    return bytes;
}

/* Whether unpickling would give an array of the same kind: pickle keeps what a program added to the type,
 * and whether the array is read-only. */
static bool is_plain(PyArrayObject *a) {
    int number = PyArray_TYPE(a);
    if (!is_number(number) || !PyArray_ISWRITEABLE(a) || PyArray_NDIM(a) > MOST_DIMENSIONS ||
        (!PyArray_IS_C_CONTIGUOUS(a) && !PyArray_IS_F_CONTIGUOUS(a)))
        return false;
    PyArray_Descr *usual = PyArray_DescrFromType(number);
    Py_XDECREF(usual);
    return PyArray_DESCR(a) == usual;
}

/* Return a scalar of one of NumPy's own classes of numbers, encoded; NULL, without an exception, for
 * other objects. */
static PyObject *encoded_scalar(PyObject *o) {
    npy_clongdouble value; /* the widest one */
    if (!PyArray_IsScalar(o, Generic)) return NULL;
    PyArray_Descr *type = PyArray_DescrFromScalar(o);
    PyObject *bytes = NULL;
    if (type && type->typeobj == Py_TYPE(o) && is_number(type->type_num) && pickles_by_default(o)) {
        PyArray_ScalarAsCtype(o, &value);
        head h = {.number = (int8_t)type->type_num, .dimensions = SCALAR};
        bytes = encoded(h, NULL, &value, (size_t)PyDataType_ELSIZE(type));
    }
    Py_XDECREF(type);
    PyErr_Clear();
    return bytes;
}

static PyObject *encode(PyObject *Py_UNUSED(module), PyObject *o) {
    if (PyArray_CheckExact(o) && is_plain((PyArrayObject *)o) && pickles_by_default(o)) {
        PyArrayObject *a = (PyArrayObject *)o;
        head h = {.number = (int8_t)PyArray_TYPE(a),
                  .dimensions = (int8_t)PyArray_NDIM(a),
                  .fortran = !PyArray_IS_C_CONTIGUOUS(a)};
        return encoded(h, PyArray_DIMS(a), PyArray_DATA(a), (size_t)PyArray_NBYTES(a));
    }
    PyObject *bytes = encoded_scalar(o);
    if (bytes) return bytes;
    bytes = by_pickle(mpi4py.dumps_name, o);
    if (bytes && !PyBytes_CheckExact(bytes)) Py_SETREF(bytes, PyObject_Bytes(bytes));
    return bytes;
}

/* ---- decoding ------------------------------------------------------------------------------- */

static PyObject *damaged(void) {
    return PyErr_Format(PyExc_ValueError, "an encoded array is damaged");
}

static PyObject *decoded(const char *from, size_t nbytes) {
    head h;
    memcpy(&h, from, sizeof h);
    npy_intp lengths[MOST_DIMENSIONS];
    size_t shape = h.dimensions > 0 ? (size_t)h.dimensions * sizeof(int64_t) : 0;
    if (!is_number(h.number) || h.dimensions < SCALAR || h.dimensions > MOST_DIMENSIONS ||
        nbytes < sizeof h + shape)
        return damaged();
    int64_t count = 1;
    for (int8_t k = 0; k < h.dimensions; k++) {
        int64_t length;
        memcpy(&length, from + sizeof h + (size_t)k * sizeof length, sizeof length);
        if (length < 0 || __builtin_mul_overflow(count, length, &count)) return damaged();
        lengths[k] = (npy_intp)length;
    }
    from += sizeof h + shape;
    nbytes -= sizeof h + shape;
    PyArray_Descr *type = PyArray_DescrFromType(h.number);
    if (!type) return NULL;
    int64_t expected;
    if (__builtin_mul_overflow(count, (int64_t)PyDataType_ELSIZE(type), &expected) ||
        (uint64_t)expected != nbytes) {
        Py_DECREF(type);
        return damaged();
    }
    if (h.dimensions == SCALAR) {
        union {
            npy_clongdouble widest;
            char bytes[sizeof(npy_clongdouble)];
        } value;
        memcpy(value.bytes, from, nbytes);
        PyObject *scalar = PyArray_Scalar(value.bytes, type, NULL);
        Py_DECREF(type);
        return scalar;
    }
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, type, h.dimensions, lengths, NULL, NULL,
                                           h.fortran ? NPY_ARRAY_F_CONTIGUOUS : 0, NULL);
    if (array && nbytes) memcpy(PyArray_DATA((PyArrayObject *)array), from, nbytes);
    return array;
}

PyObject *han_py_decode(PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) return NULL;
    bool none = !view.len;
    bool ours = (size_t)view.len >= sizeof(head) && !memcmp(view.buf, MAGIC, sizeof MAGIC);
    PyObject *object = ours ? decoded(view.buf, (size_t)view.len) : NULL;
    PyBuffer_Release(&view);
    if (none) Py_RETURN_NONE;
    return ours ? object : by_pickle(mpi4py.loads_name, data);
}

/* ---- module ---------------------------------------------------------------------------------- */

static PyObject *decode(PyObject *Py_UNUSED(module), PyObject *data) { return han_py_decode(data); }

static PyObject *learn_pickle(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *pickle, *dumps, *loads, *reducers;
    if (!PyArg_ParseTuple(args, "OOOO!:learn_pickle", &pickle, &dumps, &loads, &PyDict_Type,
                          &reducers))
        return NULL;
    Py_XSETREF(mpi4py.pickle, Py_NewRef(pickle));
    Py_XSETREF(mpi4py.dumps, Py_NewRef(dumps));
    Py_XSETREF(mpi4py.loads, Py_NewRef(loads));
    Py_XSETREF(mpi4py.reducers, Py_NewRef(reducers));
    Py_RETURN_NONE;
}

PyMethodDef han_encoded_functions[] = {
    HAN_METHOD(
        "encode", encode, METH_O, "$module, object, /",
        "Return bytes that stand for an object: pickled, or the memory of an array or scalar."),
    HAN_METHOD("decode", decode, METH_O, "$module, data, /",
               "Return the object for which the bytes of a buffer stand; no bytes stand for "
               "None.\n\nRaises ValueError for a damaged array, and what unpickling raises."),
    HAN_METHOD(
        "learn_pickle", learn_pickle, METH_VARARGS, "$module, pickle, dumps, loads, reducers, /",
        "Learn of mpi4py's MPI.pickle, its functions by default, and pickle's functions by class."),
    {NULL, NULL, 0, NULL},
};

int han_py_open_encoded(void) {
    mpi4py.dumps_name = PyUnicode_InternFromString("dumps");
    mpi4py.loads_name = PyUnicode_InternFromString("loads");
    return mpi4py.dumps_name && mpi4py.loads_name ? 0 : -1;
}
