#include "python/py_request.h"

#include "engine/queue.h"
#include "engine/wait.h"
#include "python/py_engine.h"
#include "python/py_plan.h"
#include "python/py_run.h"

typedef struct {
    PyObject_HEAD
    han_run run;
    EngineObject *engine;
    PlanObject *plan;
    PyObject *keep;  /* the user's buffers */
    PyObject *begin; /* called before a start (packing), or NULL */
    PyObject *end;   /* called after completion (unpacking), or NULL */
    bool active, started;
    bool persistent; /* may be started again; other requests release their buffers when complete */
} RequestObject;

static PyObject *none_or(PyObject *o) {
    if (o == Py_None) return NULL;
    Py_INCREF(o);
    return o;
}

static int request_init(RequestObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"engine", "plan", "send", "recv", "keep", "begin", "end",
                            "persistent", NULL};
    PyObject *engine, *plan, *keep = Py_None, *begin = Py_None, *end = Py_None;
    unsigned long long send, recv; /* addresses */
    int persistent = false;
    if (self->active) {
        PyErr_SetString(PyExc_RuntimeError, "the request is active");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!KK|OOOp", names, &EngineType, &engine,
                                     &PlanType, &plan, &send, &recv, &keep, &begin, &end,
                                     &persistent))
        return -1;
    self->persistent = persistent;
    Py_INCREF(engine);
    Py_INCREF(plan);
    self->engine = (EngineObject *)engine;
    self->plan = (PlanObject *)plan;
    self->keep = none_or(keep);
    self->begin = none_or(begin);
    self->end = none_or(end);
    self->run = (han_run){.plan = &self->plan->plan, .send = (const void *)(uintptr_t)send,
                          .recv = (void *)(uintptr_t)recv};
    return 0;
}

static int request_traverse(RequestObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->engine);
    Py_VISIT(self->keep);
    Py_VISIT(self->begin);
    Py_VISIT(self->end);
    return 0;
}

static int request_clear(RequestObject *self) {
    if (self->run.left) { /* MPI or a peer may still access the memory: never free it */
        self->keep = NULL;
        self->plan = NULL;
        self->run.left = false;
    }
    Py_CLEAR(self->keep);
    Py_CLEAR(self->begin);
    Py_CLEAR(self->end);
    Py_CLEAR(self->plan);
    Py_CLEAR(self->engine);
    return 0;
}

static void request_dealloc(RequestObject *self) {
    if (PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0) return; /* still referenced */
    PyObject_GC_UnTrack(self);
    (void)request_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static bool under_way(const RequestObject *self) {
    return atomic_load_explicit(&self->run.status, memory_order_acquire) == HAN_BLOCKED;
}

/* Requests that the program started and dropped. Peers wait for them, so engines still step
 * them. Until their runs are over, nothing that they need may be freed. */
static PyObject *orphans;

/* Take finished requests out of the list before they are freed, as freeing may run any code. */
static int forget_orphans(void) {
    Py_ssize_t n = orphans ? PyList_GET_SIZE(orphans) : 0, left = 0;
    if (!n) return 0;
    PyObject *finished = PyList_New(0);
    if (!finished) return -1;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *o = PyList_GET_ITEM(orphans, k);
        if (under_way((RequestObject *)o) || PyList_Append(finished, o)) {
            PyList_SET_ITEM(orphans, k, PyList_GET_ITEM(orphans, left));
            PyList_SET_ITEM(orphans, left++, o);
        }
    }
    int rc = PyErr_Occurred() || PyList_SetSlice(orphans, left, n, NULL) ? -1 : 0;
    Py_DECREF(finished);
    return rc;
}

PyObject *han_py_orphans(void) {
    if (forget_orphans()) return NULL;
    return orphans ? PyList_GetSlice(orphans, 0, PyList_GET_SIZE(orphans)) : PyList_New(0);
}

static void request_finalize(PyObject *o) {
    RequestObject *self = (RequestObject *)o;
    if (!self->engine || !under_way(self)) return;
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    if (!orphans) orphans = PyList_New(0);
    if (!orphans || PyList_Append(orphans, o)) {
        Py_INCREF(o); /* no memory for the list: never free it */
        PyErr_Clear();
    }
    PyErr_Restore(type, value, tb);
}

/* 0, or -1 with an exception if the request cannot be used. */
static int unusable(const RequestObject *self) {
    if (han_py_refuse_inside_op()) return -1;
    if (self->plan) return 0;
    PyErr_SetString(PyExc_ValueError, "the request has been freed");
    return -1;
}

static PyObject *request_start(RequestObject *self, PyObject *unused) {
    (void)unused;
    if (unusable(self) || forget_orphans()) return NULL;
    if (self->active) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Start: the request is active; call Wait (or Test until True) first");
        return NULL;
    }
    han_engine *e = &self->engine->engine;
    if (self->started && !self->persistent) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Start: the request is complete; only persistent ones start again");
        return NULL;
    }
    if (e->failed && han_py_report(self->engine, HAN_E_FAILED)) return NULL;
    if (self->begin) {
        PyObject *answer = PyObject_CallNoArgs(self->begin);
        if (!answer) return NULL;
        Py_DECREF(answer);
    }
    if (han_py_enqueue(self->engine, &self->run)) return NULL;
    self->active = self->started = true;
    /* Wait or Test raise errors of the run, as in MPI. */
    if (self->plan->plan.brief) {
        (void)han_try(e, &self->run, 1);
        if (self->run.status == HAN_OK || e->active) Py_RETURN_NONE;
    }
    Py_BEGIN_ALLOW_THREADS
    (void)han_progress(e, &self->run, false);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyObject *han_py_start(PyObject *request) {
    return request_start((RequestObject *)request, NULL);
}

/* End a run; `status`, if given, becomes an empty status in the sense of MPI. True, or NULL. */
static PyObject *complete(RequestObject *self, PyObject *status) {
    bool ran = self->active;
    self->active = false;
    PyObject *answer = NULL;
    if (ran && self->end) {
        answer = PyObject_CallNoArgs(self->end);
        if (!answer) return NULL;
        Py_DECREF(answer);
    }
    if (!self->persistent) {
        Py_CLEAR(self->keep);
        Py_CLEAR(self->begin);
        Py_CLEAR(self->end);
    }
    if (status) {
        answer = PyObject_CallMethod((PyObject *)self, "_empty", "O", status);
        if (!answer) return NULL;
        Py_DECREF(answer);
    }
    Py_RETURN_TRUE;
}

static PyObject *failed(RequestObject *self) {
    self->active = under_way(self);
    return NULL;
}

/* The only argument of Wait and Test: NULL if missing or None. 0, or -1 with an exception. */
static int optional_status(PyObject *const *args, Py_ssize_t n, PyObject *names, PyObject **out) {
    Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    bool right =
        n + named <= 1 &&
        (!named || !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "status"));
    *out = n + named == 1 && args[0] != Py_None ? args[0] : NULL;
    if (right) return 0;
    PyErr_SetString(PyExc_TypeError, "expected no argument, or status");
    return -1;
}

static PyObject *request_wait(RequestObject *self, PyObject *const *args, Py_ssize_t n,
                              PyObject *names) {
    PyObject *status;
    if (unusable(self) || optional_status(args, n, names, &status)) return NULL;
    if (self->active && self->run.status != HAN_OK &&
        han_py_try(self->engine, &self->run) != HAN_OK && han_py_wait(self->engine, &self->run))
        return failed(self);
    return complete(self, status); /* as MPI: an inactive request is complete */
}

/* Make progress: 1 when the run is over, 0 when not, -1 with an exception. */
static int progress(RequestObject *self) {
    enum han_status status = HAN_OK;
    if (!self->active || self->run.status == HAN_OK) return 1;
    Py_BEGIN_ALLOW_THREADS
    status = han_progress(&self->engine->engine, &self->run, false);
    Py_END_ALLOW_THREADS
    if (status <= HAN_BLOCKED) return status == HAN_OK;
    if (!han_py_report(self->engine, status)) return 0; /* a notice for others */
    (void)failed(self);
    return -1;
}

static PyObject *request_test(RequestObject *self, PyObject *const *args, Py_ssize_t n,
                              PyObject *names) {
    PyObject *status;
    if (unusable(self) || optional_status(args, n, names, &status)) return NULL;
    int done = progress(self);
    if (done <= 0) return done ? NULL : PyBool_FromLong(0);
    return complete(self, status);
}

static PyObject *request_peek(RequestObject *self, PyObject *unused) {
    (void)unused;
    if (unusable(self)) return NULL;
    int done = progress(self);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

static PyObject *request_free(RequestObject *self, PyObject *unused) {
    (void)unused;
    if (han_py_refuse_inside_op()) return NULL;
    if (self->active) {
        PyObject *done = request_wait(self, NULL, 0, NULL);
        if (!done) return NULL;
        Py_DECREF(done);
    }
    (void)request_clear(self);
    Py_RETURN_NONE;
}

static PyObject *request_get_active(RequestObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->active);
}

static PyObject *request_get_persistent(RequestObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->persistent);
}

static PyObject *request_get_engine(RequestObject *self, void *unused) {
    (void)unused;
    PyObject *e = self->engine ? (PyObject *)self->engine : Py_None;
    Py_INCREF(e);
    return e;
}

#define WITH_STATUS(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL | METH_KEYWORDS
static PyMethodDef request_methods[] = {
    {"Start", (PyCFunction)request_start, METH_NOARGS,
     "Start($self, /)\n--\n\n"
     "Start the run; it progresses inside Wait and Test."},
    {"Wait", WITH_STATUS(request_wait),
     "Wait($self, status=None)\n--\n\n"
     "Wait until complete."},
    {"Test", WITH_STATUS(request_test),
     "Test($self, status=None)\n--\n\n"
     "Make progress; return whether it is complete. A complete request is inactive."},
    {"_peek", (PyCFunction)request_peek, METH_NOARGS,
     "_peek($self, /)\n--\n\n"
     "Make progress; return whether it is complete. The request stays active."},
    {"_free", (PyCFunction)request_free, METH_NOARGS,
     "_free($self, /)\n--\n\n"
     "Complete the run if it is active, and release everything."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef request_getset[] = {
    {"active", (getter)request_get_active, NULL,
     "Whether it was started and not yet completed by Wait or Test.", NULL},
    {"persistent", (getter)request_get_persistent, NULL, "Whether it can be started again.", NULL},
    {"_engine", (getter)request_get_engine, NULL,
     "The engine that runs it; None once the request has been freed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject RequestType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Request",
    .tp_basicsize = sizeof(RequestObject),
    .tp_dealloc = (destructor)request_dealloc,
    .tp_traverse = (traverseproc)request_traverse,
    .tp_clear = (inquiry)request_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "Request(engine, plan, send, recv, keep=None, begin=None, end=None, "
              "persistent=False)\n--\n\n"
              "A plan bound to buffers; it is started, waited for and tested like an MPI request.",
    .tp_methods = request_methods,
    .tp_getset = request_getset,
    .tp_finalize = request_finalize,
    .tp_init = (initproc)request_init,
    .tp_new = PyType_GenericNew,
};
