/* Engine and Plan as Python sees them. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

enum { QUICK_ROUNDS = 256 };

/* ---- waiting ------------------------------------------------------------------------------ */

static bool interrupted(void *unused) {
    (void)unused;
    PyGILState_STATE gil = PyGILState_Ensure();
    bool raised = PyErr_CheckSignals() != 0;
    PyGILState_Release(gil);
    return raised;
}

int han_py_report(EngineObject *self, enum han_status status) {
    PyObject *type = NULL, *value = NULL, *tb = NULL;
    han_engine *e = &self->engine;
    int detail = status == HAN_E_MPI ? e->mpi_error : e->dead_rank;
    if (status == HAN_E_INTERRUPT) PyErr_Fetch(&type, &value, &tb);
    PyObject *answer = PyObject_CallFunction(self->on_error, "ii", (int)status, detail);
    if (status != HAN_E_NOTICE || !answer) {
        han_engine_stop(e);
    }
    if (type) { /* the signal handler's own exception wins */
        Py_XDECREF(answer);
        PyErr_Restore(type, value, tb);
        return -1;
    }
    if (!answer) return -1;
    Py_DECREF(answer);
    if (status == HAN_E_NOTICE) return 0;
    PyErr_SetString(PyExc_SystemError, "han: on_error did not raise");
    return -1;
}

int han_py_wait(EngineObject *self, han_run *run) {
    for (;;) {
        enum han_status status;
        Py_BEGIN_ALLOW_THREADS
        status = han_progress(&self->engine, run, true);
        Py_END_ALLOW_THREADS
        if (status == HAN_OK) return 0;
        if (han_py_report(self, status == HAN_E_FAILED ? (enum han_status)self->engine.failed : status)) return -1;
    }
}

int han_py_run(EngineObject *self, PlanObject *plan, const void *send, void *recv) {
    han_run run = {.plan = &plan->plan, .send = send, .recv = recv};
    han_engine *e = &self->engine;
    if (e->failed) return han_py_report(self, HAN_E_FAILED);
    Py_INCREF(plan); /* a signal handler may empty the cache that owns it */
    han_enqueue(e, &run);
    int rc = 0;
    if (plan->plan.quick && e->head == &run)
        (void)han_try(e, &run, e->spins < QUICK_ROUNDS ? (int)e->spins : QUICK_ROUNDS);
    if (run.status != HAN_OK) rc = han_py_wait(self, &run);
    Py_DECREF(plan);
    return rc;
}

/* ---- Plan --------------------------------------------------------------------------------- */

static void plan_dealloc(PlanObject *self) {
    free(self->code);
    free(self->comms);
    free(self->plan.requests);
    free(self->plan.operand);
    if (self->scratch.obj) PyBuffer_Release(&self->scratch);
    Py_XDECREF(self->keep);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject PlanType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Plan",
    .tp_basicsize = sizeof(PlanObject),
    .tp_dealloc = (destructor)plan_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A Program with its resources, ready to run. Made by Engine.plan.",
};

static void *copy_of(const void *data, size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, HAN_LINE, bytes ? bytes : HAN_LINE)) return NULL;
    if (bytes) memcpy(p, data, bytes);
    return p;
}

static int fill_streams(han_plan *p, PyObject *streams) {
    Py_ssize_t n = PyTuple_GET_SIZE(streams);
    if (n > HAN_MAX_STREAMS) {
        PyErr_Format(PyExc_ValueError, "%zd streams, at most %d", n, HAN_MAX_STREAMS);
        return -1;
    }
    p->n_streams = (uint32_t)n;
    for (Py_ssize_t s = 0; s < n; s++)
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(streams, s), "II", &p->streams[s].start,
                              &p->streams[s].stop))
            return -1;
    return 0;
}

static int fill_comms(PlanObject *self, PyObject *comms) {
    Py_ssize_t n = PyTuple_GET_SIZE(comms);
    self->comms = calloc((size_t)n + 1, sizeof *self->comms);
    if (!self->comms) return -1;
    for (Py_ssize_t k = 0; k < n; k++)
        self->comms[k] = (han_handle)PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(comms, k));
    self->plan.comms = self->comms;
    self->plan.n_comms = (uint32_t)n;
    return PyErr_Occurred() ? -1 : 0;
}

static int fill_plan(PlanObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"code",   "streams", "requests",    "footprint", "writes", "sync",
                            "quick",  "signature", "kernel",  "element", "op",
                            "dtype",  "commutative", "operand", "comms",   "scratch",
                            "keep",   NULL};
    han_plan *p = &self->plan;
    Py_buffer code, writes;
    PyObject *streams, *footprint, *comms, *scratch, *keep;
    unsigned long long signature, mpi_op, mpi_dtype; /* handles: no overflow check */
    int sync, quick, commutative, op, dtype;
    Py_ssize_t requests, element, operand;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O!nO!y*ppK(ii)nKKpnO!OO", names, &code,
                                     &PyTuple_Type, &streams, &requests, &PyTuple_Type,
                                     &footprint, &writes, &sync, &quick,
                                     &signature, &op, &dtype, &element, &mpi_op, &mpi_dtype,
                                     &commutative, &operand, &PyTuple_Type, &comms, &scratch,
                                     &keep))
        return -1;
    self->code = copy_of(code.buf, (size_t)code.len);
    memcpy(p->writes, writes.buf,
           (size_t)writes.len < sizeof p->writes ? (size_t)writes.len : sizeof p->writes);
    for (Py_ssize_t c = 0; c < PyTuple_GET_SIZE(footprint) && c < HAN_MAX_CHANNELS; c++)
        p->footprint[c] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(footprint, c));
    PyBuffer_Release(&code);
    PyBuffer_Release(&writes);
    if (PyErr_Occurred()) return -1;
    p->code = self->code;
    p->n_requests = (uint32_t)requests;
    p->requests = calloc((size_t)requests + 1, sizeof *p->requests);
    p->operand_size = (size_t)operand;
    p->operand = malloc((size_t)operand + HAN_LINE);
    if (!self->code || !p->requests || !p->operand) {
        PyErr_NoMemory();
        return -1;
    }
    p->sync = sync;
    p->quick = quick;
    p->commutative = commutative;
    p->signature = signature;
    p->element = (size_t)element;
    p->op = (han_handle)mpi_op;
    p->dtype = (han_handle)mpi_dtype;
    if (op >= 0) {
        p->reduce = han_reduce_kernel((enum han_op)op, (enum han_dtype)dtype);
        p->reduce2 = han_reduce2_kernel((enum han_op)op, (enum han_dtype)dtype);
    }
    if (scratch != Py_None) {
        if (PyObject_GetBuffer(scratch, &self->scratch, PyBUF_WRITABLE)) return -1;
        p->scratch = self->scratch.buf;
        p->scratch_size = (uint64_t)self->scratch.len;
    }
    Py_INCREF(keep);
    self->keep = keep;
    return fill_streams(p, streams) || fill_comms(self, comms) ? -1 : 0;
}

PyObject *han_py_plan(EngineObject *engine, PyObject *args, PyObject *kwargs) {
    (void)engine;
    PlanObject *self = PyObject_New(PlanObject, &PlanType);
    if (!self) return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
    if (fill_plan(self, args, kwargs)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* ---- Engine ------------------------------------------------------------------------------- */

static int add_channel(EngineObject *self, PyObject *spec) {
    han_engine *e = &self->engine;
    han_channel *c = &e->channels[e->n_channels];
    Py_buffer *view = &self->views[e->n_channels];
    PyObject *buffer;
    if (!PyArg_ParseTuple(spec, "OIIKKKKKK", &buffer, &c->size, &c->me, &c->control, &c->flags,
                          &c->small, &c->cells, &c->small_bank, &c->ring))
        return -1;
    if (PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE)) return -1;
    c->memory = view->buf;
    e->n_channels++;
    return 0;
}

static int load_mpi(EngineObject *self, PyObject *spec) {
    han_mpi *m = &self->mpi;
    const char *library;
    unsigned long long in_place, byte;
    if (!PyArg_ParseTuple(spec, "spiiKK", &library, &m->wide, &m->any_source, &m->notice_tag,
                          &in_place, &byte))
        return -1;
    m->in_place = (void *)(uintptr_t)in_place;
    m->byte = (han_handle)byte;
    const char *missing = han_mpi_load(m, library);
    if (missing) {
        PyErr_Format(PyExc_ImportError, "han: the MPI library that mpi4py uses has no %s (%s)",
                     missing, library);
        return -1;
    }
    self->engine.mpi = m;
    return 0;
}

static int engine_init(EngineObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"mpi", "comm", "channels", "tag_base", "wait", "on_error", NULL};
    han_engine *e = &self->engine;
    PyObject *mpi, *channels;
    unsigned long long comm;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OKO!I(IIId)O", names, &mpi, &comm,
                                     &PyTuple_Type, &channels, &e->tag_base, &e->wait.spins,
                                     &e->wait.least_spins, &e->wait.sleep_ns, &e->wait.timeout,
                                     &self->on_error))
        return -1;
    e->spins = e->wait.spins;
    Py_INCREF(self->on_error);
    if (mpi != Py_None && load_mpi(self, mpi)) return -1;
    e->comm = (han_handle)comm;
    e->interrupted = interrupted;
    e->dead_rank = -1;
    atomic_flag_clear(&e->busy);
    self->pending = PyList_New(0);
    if (PyTuple_GET_SIZE(channels) > HAN_MAX_CHANNELS) {
        PyErr_Format(PyExc_ValueError, "%zd levels share memory, at most %d",
                     PyTuple_GET_SIZE(channels), HAN_MAX_CHANNELS);
        return -1;
    }
    for (Py_ssize_t c = 0; c < PyTuple_GET_SIZE(channels); c++)
        if (add_channel(self, PyTuple_GET_ITEM(channels, c))) return -1;
    return self->pending ? 0 : -1;
}

static int engine_traverse(EngineObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->on_error);
    Py_VISIT(self->pending);
    return 0;
}

static int engine_clear(EngineObject *self) {
    han_engine_stop(&self->engine);
    Py_CLEAR(self->on_error);
    Py_CLEAR(self->pending);
    return 0;
}

static void engine_dealloc(EngineObject *self) {
    PyObject_GC_UnTrack(self);
    if (self->weakrefs) PyObject_ClearWeakRefs((PyObject *)self);
    (void)engine_clear(self);
    for (uint32_t c = 0; c < self->engine.n_channels; c++) PyBuffer_Release(&self->views[c]);
    free(self->engine.events);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *engine_stop(EngineObject *self, PyObject *unused) {
    (void)unused;
    han_engine_stop(&self->engine);
    if (PyList_SetSlice(self->pending, 0, PyList_GET_SIZE(self->pending), NULL)) return NULL;
    for (uint32_t c = 0; c < self->engine.n_channels; c++) PyBuffer_Release(&self->views[c]);
    self->engine.n_channels = 0;
    Py_RETURN_NONE;
}

static PyObject *engine_run(EngineObject *self, PyObject *args) {
    PlanObject *plan;
    Py_ssize_t send, recv;
    if (!PyArg_ParseTuple(args, "O!nn", &PlanType, &plan, &send, &recv)) return NULL;
    if (han_py_run(self, plan, (const void *)send, (void *)recv)) return NULL;
    Py_RETURN_NONE;
}

/* The current run: its signature, and where every stream stands. */
static PyObject *engine_blocked(EngineObject *self, PyObject *unused) {
    (void)unused;
    const han_engine *e = &self->engine;
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    if (!e->started || !e->head) return Py_BuildValue("(iN)", 0, list);
    const han_plan *p = e->head->plan;
    for (uint32_t s = 0; s < p->n_streams; s++) {
        if (e->pc[s] >= p->streams[s].stop) continue;
        const han_instr *i = &p->code[e->pc[s]];
        uint32_t slot = i->slot;
        int peer = i->peer;
        if (i->code == HAN_TEST) /* name the message that the request was made for */
            for (uint32_t k = p->streams[s].start; k < e->pc[s]; k++)
                if ((p->code[k].code == HAN_ISEND || p->code[k].code == HAN_IRECV) &&
                    p->code[k].slot == slot)
                    peer = p->code[k].peer;
        PyObject *row = Py_BuildValue("(iiI)", (int)i->code, peer, i->task);
        if (!row || PyList_Append(list, row)) {
            Py_XDECREF(row);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(row);
    }
    return Py_BuildValue("(KN)", (unsigned long long)p->signature, list);
}

static PyObject *engine_trace(EngineObject *self, PyObject *args) {
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "n", &n)) return NULL;
    free(self->engine.events);
    self->engine.events = n ? malloc((size_t)n * sizeof(han_event)) : NULL;
    self->engine.max_events = self->engine.events ? (size_t)n : 0;
    self->engine.n_events = 0;
    Py_RETURN_NONE;
}

static PyObject *engine_events(EngineObject *self, PyObject *unused) {
    (void)unused;
    han_engine *e = &self->engine;
    PyObject *bytes = PyBytes_FromStringAndSize(
        (const char *)e->events, (Py_ssize_t)(e->n_events * sizeof(han_event)));
    e->n_events = 0;
    return bytes;
}

static PyObject *engine_get_epoch(EngineObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->engine.epoch);
}

static PyObject *engine_get_issued(EngineObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->engine.issued);
}

static PyObject *engine_get_held(EngineObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->engine.held);
}

static int engine_set_held(EngineObject *self, PyObject *value, void *unused) {
    (void)unused;
    unsigned long long held = value ? PyLong_AsUnsignedLongLong(value) : 0;
    if (PyErr_Occurred()) return -1;
    self->engine.held = held;
    return 0;
}

static PyObject *engine_get_on_error(EngineObject *self, void *unused) {
    (void)unused;
    PyObject *o = self->on_error ? self->on_error : Py_None;
    Py_INCREF(o);
    return o;
}

static PyObject *engine_get_failed(EngineObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(self->engine.failed != HAN_OK);
}

static PyMethodDef engine_methods[] = {
    {"plan", (PyCFunction)(void (*)(void))han_py_plan, METH_VARARGS | METH_KEYWORDS,
     "Make a Plan from a Program's records."},
    {"run", (PyCFunction)engine_run, METH_VARARGS,
     "run(plan, send, recv): run a plan on two addresses and wait for it."},
    {"stop", (PyCFunction)engine_stop, METH_NOARGS, "Cancel what is under way and unmap."},
    {"blocked", (PyCFunction)engine_blocked, METH_NOARGS,
     "The current run's signature and where its streams stand: [(code, peer, task), ...]."},
    {"trace", (PyCFunction)engine_trace, METH_VARARGS,
     "trace(n): record up to n task events from now on; 0 switches off."},
    {"events", (PyCFunction)engine_events, METH_NOARGS, "Take the recorded events, as bytes."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef engine_getset[] = {
    {"epoch", (getter)engine_get_epoch, NULL, "Runs finished.", NULL},
    {"issued", (getter)engine_get_issued, NULL, "Runs started or in the queue, and finished.", NULL},
    {"held", (getter)engine_get_held, (setter)engine_set_held,
     "The run that a notice that came early is about, counted from 1; 0: none.", NULL},
    {"on_error", (getter)engine_get_on_error, NULL, "What is called on errors.", NULL},
    {"failed", (getter)engine_get_failed, NULL, "Whether an error has stopped it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject EngineType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Engine",
    .tp_basicsize = sizeof(EngineObject),
    .tp_weaklistoffset = offsetof(EngineObject, weakrefs),
    .tp_dealloc = (destructor)engine_dealloc,
    .tp_traverse = (traverseproc)engine_traverse,
    .tp_clear = (inquiry)engine_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Runs plans one after the other over the channels of one group of ranks.",
    .tp_methods = engine_methods,
    .tp_getset = engine_getset,
    .tp_init = (initproc)engine_init,
    .tp_new = PyType_GenericNew,
};
