/* Functions that only copy or only reduce, which `han limits` measures. */
#include "python/module.h"

#include <stdbool.h>

#include "data/copies.h"
#include "data/kernels.h"

enum { MOST = 3 }; /* buffers */

static void release(Py_buffer *views, int n) {
    for (int k = 0; k < n; k++) PyBuffer_Release(&views[k]);
}

/* Get views of n objects of one length; the first one must be writable. 0 or -1. */
static int look(PyObject *const *objects, Py_buffer *views, int n) {
    for (int k = 0; k < n; k++) {
        if (PyObject_GetBuffer(objects[k], &views[k], k ? PyBUF_SIMPLE : PyBUF_WRITABLE)) {
            release(views, k);
            return -1;
        }
        if (views[k].len == views[0].len) continue;
        PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes, %zd expected", views[k].len,
                     views[0].len);
        release(views, k + 1);
        return -1;
    }
    return 0;
}

static PyObject *plain_copy(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *objects[MOST];
    Py_buffer views[MOST];
    int streaming = false;
    if (!PyArg_ParseTuple(args, "OO|p", &objects[0], &objects[1], &streaming)) return NULL;
    if (look(objects, views, 2)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (streaming)
        han_copy_streaming(views[0].buf, views[1].buf, (size_t)views[0].len);
    else
        han_copy(views[0].buf, views[1].buf, (size_t)views[0].len);
    Py_END_ALLOW_THREADS
    release(views, 2);
    Py_RETURN_NONE;
}

static PyObject *plain_combine(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *objects[MOST];
    Py_buffer views[MOST];
    int op, dtype;
    if (!PyArg_ParseTuple(args, "OOO(ii)", &objects[0], &objects[1], &objects[2], &op, &dtype))
        return NULL;
    han_reduce_fn kernel = han_reduce_kernel((enum han_op)op, (enum han_dtype)dtype);
    if (!kernel) return PyErr_Format(PyExc_ValueError, "no kernel for (%d, %d)", op, dtype);
    if (look(objects, views, 3)) return NULL;
    size_t count = (size_t)views[0].len / han_dtype_size((enum han_dtype)dtype);
    Py_BEGIN_ALLOW_THREADS
    kernel(views[0].buf, views[1].buf, views[2].buf, count);
    Py_END_ALLOW_THREADS
    release(views, 3);
    Py_RETURN_NONE;
}

PyMethodDef han_kernel_functions[] = {
    HAN_METHOD(
        "plain_copy", plain_copy, METH_VARARGS, "$module, dst, src, streaming=False, /",
        "Copy a buffer; with `streaming` by stores past the caches, if the processor has these."),
    HAN_METHOD("plain_combine", plain_combine, METH_VARARGS, "$module, dst, a, b, kernel, /",
               "Store `a op b` in `dst`, for whole elements; `kernel` is the pair (op, dtype)."),
    {NULL, NULL, 0, NULL},
};
