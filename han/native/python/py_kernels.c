/* Functions that only copy, only reduce or only hand over a cache line, which commands measure. */
#include "python/module.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "clock.h"
#include "data/copies.h"
#include "data/kernels.h"

enum { MOST = 3 };       /* buffers */
enum { PATIENCE = 256 }; /* polls before a look at the clock, and a yield: ranks may share a core */

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

/* Wait until a counter has a value; false if it has not at `end`. */
static bool await(_Atomic uint64_t *counter, uint64_t value, uint64_t end) {
    for (int polls = 1; atomic_load_explicit(counter, memory_order_acquire) != value; polls++) {
        if (polls % PATIENCE) continue;
        if (han_now_ns() > end) return false;
        sched_yield();
    }
    return true;
}

/* Count up to 2 * rounds in turns with a peer, one of both first; false if it comes too late. */
static bool hand_over_all(_Atomic uint64_t *counter, bool first, uint64_t rounds, uint64_t end) {
    for (uint64_t k = 0; k < rounds; k++) {
        uint64_t turn = 2 * k + (first ? 0 : 1);
        if (!await(counter, turn, end)) return false;
        atomic_store_explicit(counter, turn + 1, memory_order_release);
    }
    return await(counter, 2 * rounds, end);
}

static PyObject *hand_over(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer view;
    int first;
    unsigned rounds;
    double seconds;
    if (!PyArg_ParseTuple(args, "w*pId", &view, &first, &rounds, &seconds)) return NULL;
    if (view.len < (Py_ssize_t)sizeof(uint64_t) || (uintptr_t)view.buf % sizeof(uint64_t)) {
        PyBuffer_Release(&view);
        return PyErr_Format(PyExc_ValueError, "a buffer of 8 aligned bytes is expected");
    }
    bool done;
    uint64_t begun, ended;
    Py_BEGIN_ALLOW_THREADS
    begun = han_now_ns();
    done = hand_over_all(view.buf, first, rounds, begun + (uint64_t)(seconds * 1e9));
    ended = han_now_ns();
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    if (!done) Py_RETURN_NONE;
    return PyFloat_FromDouble(1e-9 * (double)(ended - begun));
}

PyMethodDef han_kernel_functions[] = {
    HAN_METHOD(
        "plain_copy", plain_copy, METH_VARARGS, "$module, dst, src, streaming=False, /",
        "Copy a buffer; with `streaming` by stores past the caches, if the processor has these."),
    HAN_METHOD("plain_combine", plain_combine, METH_VARARGS, "$module, dst, a, b, kernel, /",
               "Store `a op b` in `dst`, for whole elements; `kernel` is the pair (op, dtype)."),
    HAN_METHOD("hand_over", hand_over, METH_VARARGS, "$module, line, first, rounds, seconds, /",
               "Hand a cache line of zeros over to a peer and back, so many times.\n\nReturn the "
               "seconds of all, or None if the peer does not take part in `seconds`."),
    {NULL, NULL, 0, NULL},
};
