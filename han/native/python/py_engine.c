#include "python/module.h"

#include <structmember.h>

#include "engine/stepping.h"
#include "engine/queue.h"
#include "engine/trials.h"
#include "python/objects.h"
#include "python/py_run.h"

static bool interrupted(void *Py_UNUSED(closure)) {
    if (han_py_deaf()) return false;
    PyGILState_STATE gil = PyGILState_Ensure();
    bool raised = PyErr_CheckSignals() != 0;
    PyGILState_Release(gil);
    return raised;
}

static int add_channel(EngineObject *self, PyObject *spec) {
    han_engine *e = &self->engine;
    han_channel *c = &e->channels[e->n_channels];
    Py_buffer *view = &self->views[e->n_channels];
    PyObject *buffer;
    unsigned long long cells, lender;
    int naps;
    if (!PyArg_ParseTuple(spec, "OIIKKKKKKKKKp", &buffer, &c->size, &c->me, &c->control, &c->flags,
                          &c->small, &c->small_bank, &c->banks, &cells, &c->ring, &c->least,
                          &lender, &naps))
        return -1;
    if (PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE)) return -1;
    c->memory = view->buf;
    c->lender = (uint8_t *)(uintptr_t)lender;
    c->rings = lender ? NULL : c->memory + cells;
    c->wrap = lender ? 0 : c->ring;
    if (naps) e->bells |= 1u << e->n_channels;
    e->n_channels++;
    return 0;
}

int han_py_load_mpi(han_mpi *m, PyObject *spec) {
    const char *library;
    unsigned long long in_place, byte;
    if (!PyArg_ParseTuple(spec, "spiiiiKK", &library, &m->wide, &m->any_source, &m->notice_tag,
                          &m->err_truncate, &m->err_no_mem, &in_place, &byte))
        return -1;
    m->in_place = (void *)(uintptr_t)in_place;
    m->byte = (han_handle)byte;
    const char *missing = han_mpi_load(m, library);
    if (!missing) return 0;
    return HAN_RAISE(PyExc_ImportError, "han: the MPI library that mpi4py uses has no %s (%s)",
                     missing, library);
}

static int engine_init(EngineObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"mpi", "comm", "channels", "tag_base", "wait", "on_error", NULL};
    han_engine *e = &self->engine;
    PyObject *mpi, *channels;
    unsigned long long comm;
    int futex, patient;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OKO!I(IIIdpp)O", names, &mpi, &comm,
                                     &PyTuple_Type, &channels, &e->tag_base, &e->wait.spins,
                                     &e->wait.least_spins, &e->wait.sleep_ns, &e->wait.timeout,
                                     &futex, &patient, &self->on_error))
        return -1;
    e->wait.futex = futex;
    e->wait.patient = patient;
    e->patience = SLEEP_YIELDS;
    e->spins = e->wait.spins;
    Py_INCREF(self->on_error);
    if (mpi != Py_None) {
        if (han_py_load_mpi(&self->mpi, mpi)) return -1;
        e->mpi = &self->mpi;
    }
    e->comm = e->messages = (han_handle)comm;
    e->interrupted = interrupted;
    e->dead_rank = -1;
    atomic_flag_clear(&e->busy);
    if (PyTuple_GET_SIZE(channels) > HAN_MAX_CHANNELS)
        return HAN_RAISE(PyExc_ValueError, "%zd levels share memory, at most %d expected",
                         PyTuple_GET_SIZE(channels), HAN_MAX_CHANNELS);
    for (Py_ssize_t c = 0; c < PyTuple_GET_SIZE(channels); c++)
        if (add_channel(self, PyTuple_GET_ITEM(channels, c))) return -1;
    return 0;
}

static int engine_traverse(EngineObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->on_error);
    return 0;
}

static int engine_clear(EngineObject *self) {
    han_py_stop(self);
    Py_CLEAR(self->on_error);
    return 0;
}

/* Unmap the channels, unless MPI may still access them. */
static void unmap(EngineObject *self) {
    if (self->engine.left) return;
    for (uint32_t c = 0; c < self->engine.n_channels; c++) PyBuffer_Release(&self->views[c]);
    self->engine.n_channels = 0;
}

static void release(Py_buffer *view) {
    if (!view) return;
    PyBuffer_Release(view);
    PyMem_Free(view);
}

/* Record into `memory` from now on; NULL stops recording. Several threads may call this at the
 * same time: each releases the memory that the engine returns to it. */
static void record_into(EngineObject *self, Py_buffer *memory) {
    Py_buffer *before;
    Py_BEGIN_ALLOW_THREADS
    before = han_trace_into(&self->engine, memory ? memory->buf : NULL, memory);
    Py_END_ALLOW_THREADS
    release(before);
}

/* A view of the memory of a trace, with the header of the trace initialised; or NULL. */
static Py_buffer *trace_memory(PyObject *memory, int tsc) {
    Py_buffer *view = PyMem_Calloc(1, sizeof *view);
    if (!view) return (Py_buffer *)PyErr_NoMemory();
    if (PyObject_GetBuffer(memory, view, PyBUF_WRITABLE)) {
        PyMem_Free(view);
        return NULL;
    }
    size_t lines = (size_t)view->len / sizeof(han_event);
    if (!lines) {
        release(view);
        return (void *)PyErr_Format(PyExc_ValueError, "a trace takes at least %zu bytes",
                                    sizeof(han_trace));
    }
    *(han_trace *)view->buf = (han_trace){.max = lines - 1, .tsc = (uint64_t)tsc};
    return view;
}

static void engine_dealloc(EngineObject *self) {
    PyObject_GC_UnTrack(self);
    if (self->weakrefs) PyObject_ClearWeakRefs((PyObject *)self);
    (void)engine_clear(self);
    unmap(self);
    han_trials_close(&self->engine);
    record_into(self, NULL);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *engine_fail(EngineObject *self, PyObject *Py_UNUSED(none)) {
    if (han_py_refuse_inside_op()) return NULL;
    han_py_stop(self);
    Py_RETURN_NONE;
}

static PyObject *engine_stop(EngineObject *self, PyObject *none) {
    PyObject *done = engine_fail(self, none);
    if (done) unmap(self);
    return done;
}

static PyObject *engine_run(EngineObject *self, PyObject *args) {
    PlanObject *plan;
    Py_ssize_t send, recv;
    PyObject *keep, *sizes = NULL;
    unsigned long long nbytes = 0;
    if (!PyArg_ParseTuple(args, "O!nnO|KS", &PlanType, &plan, &send, &recv, &keep, &nbytes, &sizes))
        return NULL;
    PyObject *const kept[] = {keep, sizes};
    const uint64_t *table;
    if (han_py_sizes(&plan->plan, sizes, &table) ||
        han_py_run(self, plan, (const void *)send, (void *)recv, nbytes, table, kept, 2))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *engine_look(EngineObject *self, PyObject *args) {
    double waited;
    if (!PyArg_ParseTuple(args, "d", &waited)) return NULL;
    enum han_status status = han_check_peers(&self->engine, waited);
    if (status > HAN_BLOCKED && han_py_report(self, status)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *engine_rest(EngineObject *self, PyObject *Py_UNUSED(none)) {
    Py_BEGIN_ALLOW_THREADS /* another thread may be in a step that needs Python */
    han_drop_idle(&self->engine);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *engine_leave(EngineObject *self, PyObject *Py_UNUSED(none)) {
    han_leave(&self->engine);
    Py_RETURN_NONE;
}

static PyObject *engine_blocked(EngineObject *self, PyObject *Py_UNUSED(none)) {
    han_where rows[HAN_MAX_STREAMS];
    uint64_t signature = 0, nbytes = 0;
    uint32_t n = han_engine_blocked(&self->engine, rows, &signature, &nbytes);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (uint32_t k = 0; list && k < n; k++) {
        PyObject *row = Py_BuildValue("(iiI)", rows[k].code, rows[k].peer, rows[k].task);
        if (row)
            PyList_SET_ITEM(list, k, row);
        else
            Py_CLEAR(list);
    }
    return list ? Py_BuildValue("(KKN)", (unsigned long long)signature, (unsigned long long)nbytes,
                                list)
                : NULL;
}

static PyObject *engine_trace(EngineObject *self, PyObject *args) {
    PyObject *memory;
    Py_buffer *view = NULL;
    int tsc = 0;
    if (!PyArg_ParseTuple(args, "O|p", &memory, &tsc) || han_py_refuse_inside_op()) return NULL;
    if (memory != Py_None && !(view = trace_memory(memory, tsc))) return NULL;
    record_into(self, view);
    Py_RETURN_NONE;
}

/* A number of the engine, by its place in the object. Threads that wait write it without Python's lock. */
static PyObject *engine_get_number(EngineObject *self, void *place) {
    const _Atomic uint64_t *number = (const void *)((const char *)self + (uintptr_t)place);
    return PyLong_FromUnsignedLongLong(*number);
}

static int engine_set_messages(EngineObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    unsigned long long comm = value ? PyLong_AsUnsignedLongLongMask(value) : 0;
    if (PyErr_Occurred()) return -1;
    self->engine.messages = (han_handle)comm;
    return 0;
}

/* Threads that wait read it without Python's lock. */
static int engine_set_held(EngineObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    unsigned long long held = value ? PyLong_AsUnsignedLongLong(value) : 0;
    if (PyErr_Occurred()) return -1;
    self->engine.held = held;
    return 0;
}

static PyObject *engine_get_failed(EngineObject *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(self->engine.failed != HAN_OK);
}

static PyMethodDef engine_methods[] = {
    HAN_METHOD("plan", han_py_plan, METH_VARARGS | METH_KEYWORDS,
               "$self, *, code, streams, requests, footprint, writes, sync, brief, signature, "
               "kernel, element, op, dtype, operand, comms, scratch, keep, number=0, shifts=None, "
               "arena=(0, 0), whole=0, terms=None, grains=0, grain=0, blocks=0, strides=None, "
               "tried=(0, 0, 0, 0, 0), unpacks=False",
               "Make a Plan from the records of a program."),
    HAN_METHOD("run", engine_run, METH_VARARGS,
               "$self, plan, send, recv, keep, nbytes=0, sizes=b'', /",
               "Run a plan on two addresses, and wait until it has finished; `sizes` are the bytes "
               "of each block, as numbers of 64 bits, if they differ."),
    HAN_METHOD("fail", engine_fail, METH_NOARGS, "$self, /",
               "Cancel the runs under way; later runs raise."),
    HAN_METHOD("stop", engine_stop, METH_NOARGS, "$self, /",
               "Cancel the runs under way, and unmap the channels."),
    HAN_METHOD("look", engine_look, METH_VARARGS, "$self, waited, /",
               "Raise if `waited` seconds exceed the time limit, or if a peer has died."),
    HAN_METHOD("rest", engine_rest, METH_NOARGS, "$self, /",
               "Take an engine without runs off the list of engines that waiting threads step."),
    HAN_METHOD("leave", engine_leave, METH_NOARGS, "$self, /",
               "Tell peers that share memory that this rank begins no more runs."),
    HAN_METHOD(
        "blocked", engine_blocked, METH_NOARGS, "$self, /",
        "Return the signature of the current run, and (code, peer, task) of blocked streams."),
    HAN_METHOD("trace", engine_trace, METH_VARARGS, "$self, memory, tsc=False, /",
               "Record tasks in `memory` from now on; None stops recording."),
    {NULL, NULL, 0, NULL},
};

#define AT(field) (void *)offsetof(EngineObject, engine.field)
static PyGetSetDef engine_getset[] = {
    {"epoch", (getter)engine_get_number, NULL, "The number of runs finished.", AT(finished)},
    {"issued", (getter)engine_get_number, NULL,
     "The number of runs started, including queued and finished ones.", AT(issued)},
    {"held", (getter)engine_get_number, (setter)engine_set_held,
     "The run of which a notice arrived early, counted from 1; 0: none.", AT(held)},
    {"messages", NULL, (setter)engine_set_messages,
     "The handle of the communicator that runs send messages on.", NULL},
    {"failed", (getter)engine_get_failed, NULL, "Whether an error has stopped the engine.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef engine_members[] = {
    {"alternatives", T_ULONGLONG, offsetof(EngineObject, engine.alternatives), READONLY,
     "The number of runs of an alternative."},
    {"on_error", T_OBJECT, offsetof(EngineObject, on_error), READONLY,
     "The function that is called on errors."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject EngineType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Engine",
    .tp_basicsize = sizeof(EngineObject),
    .tp_weaklistoffset = offsetof(EngineObject, weakrefs),
    .tp_dealloc = (destructor)engine_dealloc,
    .tp_traverse = (traverseproc)engine_traverse,
    .tp_clear = (inquiry)engine_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Engine(mpi, comm, channels, tag_base, wait, on_error)\n--\n\n"
              "Runs plans one after the other over the channels of one group of ranks.",
    .tp_methods = engine_methods,
    .tp_members = engine_members,
    .tp_getset = engine_getset,
    .tp_init = (initproc)engine_init,
    .tp_new = PyType_GenericNew,
};
