/* A plan bound to buffers: what nonblocking and persistent calls return. */
#include "binding.h"

typedef struct {
    PyObject_HEAD
    han_run run;
    EngineObject *engine;
    PlanObject *plan;
    PyObject *keep;  /* the user's buffers */
    PyObject *begin; /* called before a start (packing), or NULL */
    PyObject *end;   /* called after completion (unpacking), or NULL */
    bool active;
} RequestObject;

static PyObject *none_or(PyObject *o) {
    if (o == Py_None) return NULL;
    Py_INCREF(o);
    return o;
}

static int request_init(RequestObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"engine", "plan", "send", "recv", "keep", "begin", "end", NULL};
    PyObject *engine, *plan, *keep = Py_None, *begin = Py_None, *end = Py_None;
    unsigned long long send, recv; /* addresses */
    if (self->active) {
        PyErr_SetString(PyExc_RuntimeError, "the request is active");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!KK|OOO", names, &EngineType, &engine,
                                     &PlanType, &plan, &send, &recv, &keep, &begin, &end))
        return -1;
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
    Py_CLEAR(self->keep);
    Py_CLEAR(self->begin);
    Py_CLEAR(self->end);
    Py_CLEAR(self->plan);
    Py_CLEAR(self->engine);
    return 0;
}

static void request_dealloc(RequestObject *self) {
    if (PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0) return; /* kept after all */
    PyObject_GC_UnTrack(self);
    (void)request_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* A request that its owner dropped still runs to its end: the engine keeps it until then. */
static void request_finalize(PyObject *o) {
    RequestObject *self = (RequestObject *)o;
    if (!self->engine || !self->run.queued) return;
    PyObject *type, *value, *tb, *pending = self->engine->pending;
    PyErr_Fetch(&type, &value, &tb);
    for (Py_ssize_t k = PyList_GET_SIZE(pending); k-- > 0;) {
        RequestObject *r = (RequestObject *)PyList_GET_ITEM(pending, k);
        if (!r->run.queued) (void)PyList_SetSlice(pending, k, k + 1, NULL);
    }
    (void)PyList_Append(pending, o);
    PyErr_Restore(type, value, tb);
}

static int freed(const RequestObject *self) {
    if (self->plan) return 0;
    PyErr_SetString(PyExc_ValueError, "the request has been freed");
    return -1;
}

static PyObject *request_start(RequestObject *self, PyObject *unused) {
    (void)unused;
    if (freed(self)) return NULL;
    if (self->active) {
        PyErr_SetString(PyExc_RuntimeError,
                        "Start: the request is active; call Wait (or Test until True) first");
        return NULL;
    }
    EngineObject *engine = self->engine;
    han_engine *e = &engine->engine;
    if (e->failed) {
        (void)han_py_run(engine, self->plan, NULL, NULL); /* tells why */
        return NULL;
    }
    if (self->begin) {
        PyObject *answer = PyObject_CallNoArgs(self->begin);
        if (!answer) return NULL;
        Py_DECREF(answer);
    }
    self->active = true;
    han_enqueue(e, &self->run);
    /* An error shows in Wait or Test, where MPI shows it. */
    if (self->plan->plan.quick) {
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

static int complete(RequestObject *self) {
    self->active = false;
    if (!self->end) return 0;
    PyObject *answer = PyObject_CallNoArgs(self->end);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}

static PyObject *request_wait(RequestObject *self, PyObject *unused) {
    (void)unused;
    if (freed(self)) return NULL;
    if (!self->active) Py_RETURN_TRUE; /* as MPI: an inactive request is complete */
    han_engine *e = &self->engine->engine;
    if (self->run.status != HAN_OK && self->plan->plan.quick)
        (void)han_try(e, &self->run, e->spins < 256 ? (int)e->spins : 256);
    if (self->run.status != HAN_OK && han_py_wait(self->engine, &self->run)) {
        self->active = false;
        return NULL;
    }
    if (complete(self)) return NULL;
    Py_RETURN_TRUE;
}

static PyObject *request_test(RequestObject *self, PyObject *unused) {
    (void)unused;
    if (freed(self)) return NULL;
    if (!self->active) Py_RETURN_TRUE;
    enum han_status status = HAN_OK;
    if (self->run.status != HAN_OK) {
        Py_BEGIN_ALLOW_THREADS
        status = han_progress(&self->engine->engine, &self->run, false);
        Py_END_ALLOW_THREADS
    }
    if (status == HAN_BLOCKED) Py_RETURN_FALSE;
    if (status == HAN_E_NOTICE) { /* perhaps one that does not concern us */
        if (!han_py_report(self->engine, status)) Py_RETURN_FALSE;
        self->active = false;
        return NULL;
    }
    if (status != HAN_OK) return request_wait(self, NULL); /* raises */
    if (complete(self)) return NULL;
    Py_RETURN_TRUE;
}

static PyObject *request_free(RequestObject *self, PyObject *unused) {
    (void)unused;
    if (self->active && !request_wait(self, NULL)) return NULL;
    (void)request_clear(self);
    Py_RETURN_NONE;
}

static PyObject *request_get_active(RequestObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->active);
}

static PyObject *request_get_engine(RequestObject *self, void *unused) {
    (void)unused;
    PyObject *e = self->engine ? (PyObject *)self->engine : Py_None;
    Py_INCREF(e);
    return e;
}

static PyMethodDef request_methods[] = {
    {"Start", (PyCFunction)request_start, METH_NOARGS, "Begin; progress is made in Wait and Test."},
    {"Wait", (PyCFunction)request_wait, METH_NOARGS, "Wait until complete."},
    {"Test", (PyCFunction)request_test, METH_NOARGS, "Make progress; whether it is complete."},
    {"_free", (PyCFunction)request_free, METH_NOARGS, "Complete it and let everything go."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef request_getset[] = {
    {"active", (getter)request_get_active, NULL, "Started and not yet waited for.", NULL},
    {"_engine", (getter)request_get_engine, NULL, "The engine that runs it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject RequestType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Request",
    .tp_basicsize = sizeof(RequestObject),
    .tp_dealloc = (destructor)request_dealloc,
    .tp_traverse = (traverseproc)request_traverse,
    .tp_clear = (inquiry)request_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_doc = "A plan bound to buffers; started, waited for and tested like an MPI request.",
    .tp_methods = request_methods,
    .tp_getset = request_getset,
    .tp_finalize = request_finalize,
    .tp_init = (initproc)request_init,
    .tp_new = PyType_GenericNew,
};
