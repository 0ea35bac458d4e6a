/* What the C door (door/door.h) asks for. A repeated call is read and run here without Python; all
 * others go to functions of han/preloaded.py. */
#define _GNU_SOURCE
#include "python/module.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "door/door.h"
#include "program.h"
#include "python/py_calls.h"
#include "python/py_run.h"

enum { MOST_OPS = 16 };

/* What han/preloaded.py gives. */
static struct {
    PyObject *first;  /* (call as a tuple) -> (code, look-up or None) */
    PyObject *failed; /* (comm, error) -> code */
    PyObject *free;   /* (comm) -> code */
    PyObject *forget; /* (op) */
    PyObject *end;    /* () */
    int n_ops;
    han_handle op[MOST_OPS]; /* MPI's own operations, and their objects */
    PyObject *op_object[MOST_OPS];
    int wide;  /* handles are pointers */
    int other; /* MPI's code of an error that Python could not tell */
} door;

/* ---- a repeated call ------------------------------------------------------------------------ */

static bool reads(const han_caller *self, const void *at, int64_t n, han_handle type,
                  han_buffer *b) {
    b->element = han_element_find(&self->reader->known, HAN_BY_HANDLE, (uint64_t)type);
    if (!b->element || n < 0 || (!at && n)) return false;
    b->data = (uint8_t *)(uintptr_t)at;
    return !__builtin_mul_overflow((uint64_t)n, b->element->size, &b->nbytes);
}

/* The same of a block for each rank; `nbytes` is that of one. */
static bool reads_blocks(const han_caller *self, const void *at, int64_t n, han_handle type,
                         han_buffer *b, uint64_t *nbytes) {
    if (!reads(self, at, n, type, b)) return false;
    *nbytes = b->nbytes;
    return !__builtin_mul_overflow(b->nbytes, (uint64_t)self->size, &b->nbytes);
}

static void share(han_buffer *with, const han_buffer *b) {
    with->data = b->data;
    with->nbytes = b->nbytes;
    with->element = b->element;
}

static PyObject *op_of(han_handle op) {
    for (int k = 0; k < door.n_ops; k++)
        if (door.op[k] == op) return door.op_object[k];
    return NULL;
}

static bool reduces(han_call *c, const han_door_call *d, const han_buffer *b, uint64_t nbytes) {
    c->key.nbytes = nbytes;
    c->key.kind = b->element->kind;
    c->key.handle = b->element->handle;
    c->key.op = op_of(d->op);
    return c->key.op && b->element->kind >= 0;
}

/* A reduction of whole messages on a rank that receives. */
static bool combines(const han_caller *self, const han_door_call *d, bool in_place, han_call *c) {
    if (!reads(self, d->recv, d->n_recv, d->recv_type, &c->recv)) return false;
    if (in_place)
        share(&c->send, &c->recv);
    else if (!reads(self, d->send, d->n_send, d->send_type, &c->send) || !han_apart(c))
        return false;
    return reduces(c, d, &c->recv, c->recv.nbytes);
}

static bool collects(const han_caller *self, const han_door_call *d, bool in_place, han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (!reads_blocks(self, d->recv, d->n_recv, d->recv_type, &c->recv, nbytes)) return false;
    if (in_place) {
        c->send.data = c->recv.data + *nbytes * (uint64_t)self->rank;
        return true;
    }
    return reads(self, d->send, d->n_send, d->send_type, &c->send) && c->send.nbytes == *nbytes &&
           han_apart(c);
}

static bool read_gather(const han_caller *self, const han_door_call *d, bool in_place,
                        han_call *c) {
    if (d->root == self->rank) return collects(self, d, in_place, c);
    if (!reads(self, d->send, d->n_send, d->send_type, &c->send)) return false;
    c->key.nbytes = c->send.nbytes;
    return true;
}

static bool read_scatter(const han_caller *self, const han_door_call *d, const void *in_place,
                         han_call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (d->root != self->rank) {
        if (!reads(self, d->recv, d->n_recv, d->recv_type, &c->recv)) return false;
        *nbytes = c->recv.nbytes;
        return true;
    }
    if (!reads_blocks(self, d->send, d->n_send, d->send_type, &c->send, nbytes)) return false;
    if (d->recv == in_place) {
        c->recv.data = c->send.data + *nbytes * (uint64_t)self->rank;
        return true;
    }
    return reads(self, d->recv, d->n_recv, d->recv_type, &c->recv) && c->recv.nbytes == *nbytes &&
           han_apart(c);
}

static bool read_alltoall(const han_caller *self, const han_door_call *d, bool in_place,
                          han_call *c) {
    uint64_t sent;
    if (!reads_blocks(self, d->recv, d->n_recv, d->recv_type, &c->recv, &c->key.nbytes))
        return false;
    c->key.root = in_place; /* no root here: tells in-place calls from others */
    if (in_place) {
        share(&c->send, &c->recv);
        return true;
    }
    return reads_blocks(self, d->send, d->n_send, d->send_type, &c->send, &sent) &&
           sent == c->key.nbytes && han_apart(c);
}

static bool read_reduce_scatter(const han_caller *self, const han_door_call *d, bool in_place,
                                han_call *c) {
    uint64_t nbytes;
    c->key.root = in_place; /* as in alltoall */
    if (in_place) {
        if (!reads_blocks(self, d->recv, d->n_recv, d->recv_type, &c->recv, &nbytes)) return false;
        share(&c->send, &c->recv);
    } else if (!reads(self, d->recv, d->n_recv, d->recv_type, &c->recv) ||
               !reads_blocks(self, d->send, d->n_send, d->send_type, &c->send, &nbytes) ||
               !han_apart(c)) {
        return false;
    }
    return reduces(c, d, &c->recv, nbytes);
}

static bool read_call(const han_caller *self, const han_door_call *d, void *in_place, han_call *c) {
    const bool own = d->send == in_place;
    c->key.root = d->root;
    switch (d->collective) {
    case HAN_C_BARRIER:
        return true;
    case HAN_C_BCAST:
        if (!reads(self, d->recv, d->n_recv, d->recv_type, &c->recv)) return false;
        share(&c->send, &c->recv);
        c->key.nbytes = c->recv.nbytes;
        return true;
    case HAN_C_REDUCE:
        if (d->root == self->rank) return combines(self, d, own, c);
        return !own && reads(self, d->send, d->n_send, d->send_type, &c->send) &&
               reduces(c, d, &c->send, c->send.nbytes);
    case HAN_C_ALLREDUCE:
    case HAN_C_SCAN:
    case HAN_C_EXSCAN:
        return combines(self, d, own, c);
    case HAN_C_GATHER:
        return read_gather(self, d, own, c);
    case HAN_C_SCATTER:
        return read_scatter(self, d, in_place, c);
    case HAN_C_ALLGATHER:
        return collects(self, d, own, c);
    case HAN_C_ALLTOALL:
        return read_alltoall(self, d, own, c);
    case HAN_C_REDUCE_SCATTER:
        return read_reduce_scatter(self, d, own, c);
    default:
        return false;
    }
}

/* ---- answers of Python ---------------------------------------------------------------------- */

/* MPI's code that a function of Python returns; drops the answer. With an exception, `other`. */
static int code_in(PyObject *answer) {
    int code = answer ? (int)PyLong_AsLong(answer) : door.other;
    if (PyErr_Occurred()) {
        PyErr_Print();
        code = door.other;
    }
    Py_XDECREF(answer);
    return code;
}

/* A handle as mpi4py shows it: an int without its sign, or a pointer. */
static unsigned long long shown(han_handle handle) {
    return door.wide ? (unsigned long long)handle : (unsigned)handle;
}

/* The code of the exception that was raised in a call on a communicator. */
static int code_of_error(han_handle comm) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    int code = code_in(PyObject_CallFunction(door.failed, "KO", shown(comm), value));
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return code;
}

static bool again(void *calls, const han_door_call *d, int *code) {
    const han_caller *caller = han_py_calls_caller(calls);
    EngineObject *engine = han_py_calls_engine(calls);
    PyGILState_STATE held;
    han_call c = {.key.collective = d->collective};
    if (!engine || !read_call(caller, d, engine->mpi.in_place, &c)) return false;
    PlanObject *plan = han_py_calls_known(calls, &c);
    if (!plan) return false;
    *code = 0;
    if (han_py_run_unlocked(engine, plan, c.send.data, c.recv.data, c.key.nbytes, &held))
        return true;
    *code = code_of_error(d->comm);
    PyGILState_Release(held);
    return true;
}

static int first(const han_door_call *d, void **calls) {
    PyGILState_STATE gil = PyGILState_Ensure();
    int code = door.other;
    PyObject *found = NULL;
    PyObject *answer = PyObject_CallFunction(
        door.first, "((iKKKLLKKKi))", d->collective, shown(d->comm),
        (unsigned long long)(uintptr_t)d->send, (unsigned long long)(uintptr_t)d->recv,
        (long long)d->n_send, (long long)d->n_recv, shown(d->send_type), shown(d->recv_type),
        shown(d->op), d->root);
    if (!answer || !PyArg_ParseTuple(answer, "iO", &code, &found))
        PyErr_Print();
    else if (*calls != found) /* the communicator's State owns it as long as the door uses it */
        *calls = found == Py_None ? NULL : found;
    Py_XDECREF(answer);
    PyGILState_Release(gil);
    return code;
}

/* Call a function of Python with a handle, or without one. */
static int call(PyObject *function, const char *format, han_handle handle) {
    PyGILState_STATE gil = PyGILState_Ensure();
    int code = code_in(PyObject_CallFunction(function, format, shown(handle)));
    PyGILState_Release(gil);
    return code;
}

static int release(han_handle comm) { return call(door.free, "K", comm); }
static void forget(han_handle op) { (void)call(door.forget, "K", op); }
static void end(void) { (void)call(door.end, "", 0); }

static const han_door_api api = {again, first, release, forget, end};

/* ---- open_door ------------------------------------------------------------------------------ */

/* open_door(first, failed, free, forget, end, operations, wide, code): whether there is a door. */
static PyObject *open_door(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *f[5], *ops;
    han_door_open_fn *open = (han_door_open_fn *)dlsym(RTLD_DEFAULT, HAN_DOOR_OPEN);
    if (!PyArg_ParseTuple(args, "OOOOOO!pi", &f[0], &f[1], &f[2], &f[3], &f[4], &PyTuple_Type, &ops,
                          &door.wide, &door.other))
        return NULL;
    if (!open || door.first) return PyBool_FromLong(open != NULL);
    if (PyTuple_GET_SIZE(ops) > MOST_OPS)
        return PyErr_Format(PyExc_ValueError, "at most %d operations", MOST_OPS);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(ops); k++) {
        unsigned long long handle;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(ops, k), "KO", &handle, &door.op_object[k]))
            return NULL;
        Py_INCREF(door.op_object[k]);
        door.op[k] = door.wide ? (han_handle)handle : (int)handle;
    }
    door.n_ops = (int)PyTuple_GET_SIZE(ops);
    for (int k = 0; k < 5; k++) Py_INCREF(f[k]);
    door.failed = f[1], door.free = f[2], door.forget = f[3], door.end = f[4];
    door.first = f[0];
    open(&api);
    Py_RETURN_TRUE;
}

PyMethodDef han_door_functions[] = {
    HAN_METHOD("open_door", open_door, METH_VARARGS,
               "$module, first, failed, free, forget, end, operations, wide, code, /",
               "Serve the preloaded library; whether there is one."),
    {NULL, NULL, 0, NULL},
};
