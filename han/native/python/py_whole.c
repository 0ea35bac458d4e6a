#include "python/py_whole.h"

#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

static bool integer(PyObject *o, int64_t *n) {
    if (!PyIndex_Check(o)) return false;
    Py_ssize_t number =
        PyLong_Check(o) ? PyLong_AsSsize_t(o) : PyNumber_AsSsize_t(o, PyExc_OverflowError);
    *n = number;
    if (number != -1 || !PyErr_Occurred()) return true;
    PyErr_Clear();
    return false;
}

bool han_py_whole(PyObject *o, uint64_t *n) {
    int64_t number;
    if (!integer(o, &number) || number < 0) return false;
    *n = (uint64_t)number;
    return true;
}

bool han_py_is_number(PyObject *o) {
    if (PyLong_Check(o) || PyArray_IsScalar(o, Integer)) return true;
    if (PyArray_Check(o)) return !PyArray_NDIM((PyArrayObject *)o);
    return PyIndex_Check(o) && !PySequence_Check(o);
}

/* ---- integers in memory ------------------------------------------------------------------- */

/* Where integers are, and of which type. */
typedef struct {
    const char *first;
    Py_ssize_t step, size; /* bytes from one to the next; of each */
    bool is_signed;
} integers;

#define TAKE(type)                          \
    do {                                    \
        type number;                        \
        memcpy(&number, at, sizeof number); \
        return (int64_t)number;             \
    } while (0)

/* One number; a negative one if it does not fit 63 bits. */
static int64_t number_at(const char *at, Py_ssize_t size, bool is_signed) {
    if (size == 1 && is_signed) TAKE(int8_t);
    if (size == 1) TAKE(uint8_t);
    if (size == 2 && is_signed) TAKE(int16_t);
    if (size == 2) TAKE(uint16_t);
    if (size == 4 && is_signed) TAKE(int32_t);
    if (size == 4) TAKE(uint32_t);
    TAKE(int64_t);
}

static void take(const integers *from, int32_t n, int64_t *out) {
    for (int32_t k = 0; k < n; k++)
        out[k] = number_at(from->first + k * from->step, from->size, from->is_signed);
}

static bool of_array(PyArrayObject *a, int32_t n, integers *out) {
    if (PyArray_NDIM(a) != 1 || PyArray_DIM(a, 0) != n || !PyArray_ISNOTSWAPPED(a) ||
        !PyTypeNum_ISINTEGER(PyArray_TYPE(a)))
        return false;
    *out = (integers){PyArray_BYTES(a), PyArray_STRIDE(a, 0), PyArray_ITEMSIZE(a),
                      PyTypeNum_ISSIGNED(PyArray_TYPE(a))};
    return true;
}

/* Whether a buffer has integers in the byte order of this machine. */
static bool of_view(const Py_buffer *view, int32_t n, integers *out) {
    const char *format = view->format ? view->format : "B";
    if (view->ndim != 1 || view->shape[0] != n) return false;
    if (*format == '@' || *format == '=' || *format == (PY_LITTLE_ENDIAN ? '<' : '>')) format++;
    bool is_signed = *format && strchr("bhilqn", *format);
    if (!*format || format[1] || (!is_signed && !strchr("BHILQN", *format))) return false;
    Py_ssize_t step = view->strides ? view->strides[0] : view->itemsize; /* ctypes gives none */
    *out = (integers){view->buf, step, view->itemsize, is_signed};
    return true;
}

static bool from_buffer(PyObject *o, int32_t n, int64_t *out) {
    Py_buffer view;
    integers found;
    if (PyObject_GetBuffer(o, &view, PyBUF_RECORDS_RO)) {
        PyErr_Clear();
        return false;
    }
    bool known = of_view(&view, n, &found);
    if (known) take(&found, n, out);
    PyBuffer_Release(&view);
    return known;
}

/* ---- sequences ---------------------------------------------------------------------------- */

static bool from_list(PyObject *o, int32_t n, int64_t *out) {
    for (int32_t k = 0; k < n; k++) {
        if (PySequence_Fast_GET_SIZE(o) != n)
            return false; /* code of an item's class may change it */
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(o, k));
        bool found = integer(item, &out[k]);
        Py_DECREF(item);
        if (!found) return false;
    }
    return PySequence_Fast_GET_SIZE(o) == n;
}

static bool from_sequence(PyObject *o, int32_t n, int64_t *out) {
    bool found = PySequence_Size(o) == n;
    for (int32_t k = 0; found && k < n; k++) {
        PyObject *item = PySequence_GetItem(o, k);
        found = item && integer(item, &out[k]);
        Py_XDECREF(item);
    }
    PyErr_Clear();
    return found;
}

bool han_py_integers(PyObject *o, int32_t n, int64_t *out) {
    integers found;
    if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) return from_list(o, n, out);
    if (PyArray_CheckExact(o) && of_array((PyArrayObject *)o, n, &found)) {
        take(&found, n, out);
        return true;
    }
    if (!PyArray_Check(o) && PyObject_CheckBuffer(o) && from_buffer(o, n, out)) return true;
    return PySequence_Check(o) && from_sequence(o, n, out);
}

int han_py_open_whole(void) {
    import_array1(-1);
    return 0;
}
