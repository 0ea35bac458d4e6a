/* The quick way of a blocking call: plain arrays of a shape that was seen before go from the
 * method of han.Comm to the executor through one look-up, without an allocation. Whatever is
 * not plain, new or wrong is answered with False and takes the long way (han/message.py). */
#include "binding.h"

#include <errno.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

enum { SLOTS = 512, MOST = SLOTS / 2 };

typedef struct {
    uint64_t nbytes;
    PyObject *op; /* compared by identity, and owned */
    int32_t collective, root, dtype;
    PlanObject *plan; /* NULL: an empty slot */
} entry;

typedef struct {
    PyObject_HEAD
    EngineObject *engine;
    PyObject *in_place;
    PyObject *request; /* the class of what nonblocking calls return */
    int32_t rank, size;
    uint32_t used;
    unsigned long long hits; /* calls that found their plan here */
    entry slots[SLOTS];
} CallsObject;

static entry *find(CallsObject *self, const entry *key) {
    uint64_t h = key->nbytes * 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)key->op;
    h ^= (uint64_t)(uint32_t)key->collective << 40 ^ (uint64_t)(uint32_t)key->root << 20 ^
         (uint64_t)(uint32_t)key->dtype;
    h *= 0xff51afd7ed558ccdu;
    for (uint32_t k = (uint32_t)(h >> 40) % SLOTS;; k = (k + 1) % SLOTS) {
        entry *s = &self->slots[k];
        if (!s->plan || (s->nbytes == key->nbytes && s->op == key->op && s->root == key->root &&
                         s->collective == key->collective && s->dtype == key->dtype))
            return s;
    }
}

typedef struct {
    uint8_t *data;
    uint64_t nbytes;
    int dtype;
} array;

/* A contiguous array of numbers in native byte order, and nothing else. */
static bool plain(PyObject *o, array *out) {
    if (!PyArray_CheckExact(o)) return false;
    PyArrayObject *a = (PyArrayObject *)o;
    int type = PyArray_TYPE(a);
    if (!(PyTypeNum_ISNUMBER(type) || type == NPY_BOOL) || !PyArray_ISNOTSWAPPED(a)) return false;
    if (!PyArray_IS_C_CONTIGUOUS(a) && !PyArray_IS_F_CONTIGUOUS(a)) return false;
    out->data = PyArray_DATA(a);
    out->nbytes = (uint64_t)PyArray_NBYTES(a);
    out->dtype = type;
    return true;
}

static bool plain_writable(PyObject *o, array *out) {
    return plain(o, out) && PyArray_ISWRITEABLE((PyArrayObject *)o);
}

static bool apart(const array *a, const array *b) {
    return a->data + a->nbytes <= b->data || b->data + b->nbytes <= a->data;
}

static bool alike(const array *a, const array *b) {
    return a->nbytes == b->nbytes && a->dtype == b->dtype && apart(a, b);
}

/* How a call goes on once its plan is found: to its end, or as a request that keeps `keep`. */
typedef PyObject *(*mode)(CallsObject *, PlanObject *, const void *send, void *recv,
                          PyObject *const *keep, Py_ssize_t n);

static PyObject *blocking(CallsObject *self, PlanObject *plan, const void *send, void *recv,
                          PyObject *const *keep, Py_ssize_t n) {
    if (han_py_run(self->engine, plan, send, recv, keep, n)) return NULL;
    Py_RETURN_TRUE;
}

static PyObject *nonblocking(CallsObject *self, PlanObject *plan, const void *send, void *recv,
                             PyObject *const *keep, Py_ssize_t n) {
    PyObject *kept = n ? PyTuple_Pack(n, keep[0], keep[n - 1]) : PyTuple_New(0);
    if (!kept) return NULL;
    PyObject *request = PyObject_CallFunction(
        self->request, "OOKKN", self->engine, plan, (unsigned long long)(uintptr_t)send,
        (unsigned long long)(uintptr_t)recv, kept);
    if (!request) return NULL;
    PyObject *started = han_py_start(request);
    Py_XDECREF(started);
    if (!started) Py_CLEAR(request);
    return request;
}

/* Whether an alternative could be offered that is yet to be made. */
static bool lacks_alternative(const han_plan *p, const void *send, const void *recv) {
    return p->arena_size && !p->alternative && han_in_arena(p, send) && han_in_arena(p, recv);
}

/* Whether its rival is yet to be made: the second blocking call does. */
static bool lacks_rival(const han_plan *p, mode go) {
    return go == blocking && p->tried && !p->rival;
}

/* NULL with an exception, False where the call must go the long way, else what `go` returns. */
static PyObject *run(CallsObject *self, const entry *key, const void *send, void *recv, mode go,
                     PyObject *const *keep, Py_ssize_t n) {
    entry *hit = find(self, key);
    if (!hit->plan || lacks_alternative(&hit->plan->plan, send, recv)) Py_RETURN_FALSE;
    if (lacks_rival(&hit->plan->plan, go)) Py_RETURN_FALSE;
    self->hits++;
    return go(self, hit->plan, send, recv, keep, n);
}

static int few(Py_ssize_t n, Py_ssize_t expected) {
    if (n == expected) return 0;
    PyErr_Format(PyExc_TypeError, "%zd arguments, %zd expected", n, expected);
    return -1;
}

static bool root_of(PyObject *o, entry *key) {
    if (!PyLong_CheckExact(o)) return false;
    long root = PyLong_AsLong(o);
    if (root == -1 && PyErr_Occurred()) PyErr_Clear();
    key->root = (int32_t)root;
    return root >= 0 && root < INT32_MAX;
}

static PyObject *bcast(CallsObject *self, PyObject *const *args, Py_ssize_t n, mode go) {
    array buf;
    entry key = {.collective = HAN_C_BCAST};
    if (few(n, 2)) return NULL;
    /* The root only reads: an array that it may not write is welcome, but takes the long way. */
    if (!plain_writable(args[0], &buf) || !root_of(args[1], &key)) Py_RETURN_FALSE;
    key.nbytes = buf.nbytes;
    return run(self, &key, buf.data, buf.data, go, args, 1);
}

static PyObject *allreduce(CallsObject *self, PyObject *const *args, Py_ssize_t n, mode go) {
    array send, recv;
    entry key = {.collective = HAN_C_ALLREDUCE};
    if (few(n, 3)) return NULL;
    if (!plain_writable(args[1], &recv)) Py_RETURN_FALSE;
    if (args[0] == self->in_place)
        send = recv;
    else if (!plain(args[0], &send) || !alike(&send, &recv))
        Py_RETURN_FALSE;
    key.nbytes = recv.nbytes;
    key.dtype = recv.dtype;
    key.op = args[2];
    return run(self, &key, send.data, recv.data, go, args, 2);
}

static PyObject *reduce(CallsObject *self, PyObject *const *args, Py_ssize_t n, mode go) {
    array send, recv = {0};
    entry key = {.collective = HAN_C_REDUCE};
    if (few(n, 5)) return NULL; /* send, recv, op, root, whether this rank is the root */
    if (!root_of(args[3], &key)) Py_RETURN_FALSE;
    if (args[4] == Py_True) {
        if (!plain_writable(args[1], &recv)) Py_RETURN_FALSE;
        if (args[0] == self->in_place)
            send = recv;
        else if (!plain(args[0], &send) || !alike(&send, &recv))
            Py_RETURN_FALSE;
    } else if (!plain(args[0], &send)) {
        Py_RETURN_FALSE;
    }
    key.nbytes = send.nbytes;
    key.dtype = send.dtype;
    key.op = args[2];
    return run(self, &key, send.data, recv.data, go, args, 2);
}

static PyObject *barrier(CallsObject *self, mode go) {
    entry key = {.collective = HAN_C_BARRIER};
    return run(self, &key, NULL, NULL, go, NULL, 0);
}

/* ---- buffers that hold a block for each rank ----------------------------------------------- */

/* The bytes of one of the blocks that an array is made of: whole elements, as many in each. */
static bool block_of(const CallsObject *self, PyObject *o, const array *a, uint64_t *nbytes) {
    uint64_t parts = (uint64_t)self->size * (uint64_t)PyArray_ITEMSIZE((PyArrayObject *)o);
    *nbytes = a->nbytes / (uint64_t)self->size;
    return parts && a->nbytes % parts == 0;
}

/* This rank gets all blocks; its own is in `send`, or in its place already. */
static bool collecting(const CallsObject *self, PyObject *const *args, array *send, array *recv,
                       uint64_t *nbytes) {
    if (!plain_writable(args[1], recv) || !block_of(self, args[1], recv, nbytes)) return false;
    if (args[0] == self->in_place) {
        send->data = recv->data + *nbytes * (uint64_t)self->rank;
        return true;
    }
    return plain(args[0], send) && send->nbytes == *nbytes && apart(send, recv);
}

static PyObject *gather(CallsObject *self, PyObject *const *args, Py_ssize_t n, mode go) {
    array send = {0}, recv = {0};
    entry key = {.collective = HAN_C_GATHER};
    if (few(n, 3)) return NULL;
    if (!root_of(args[2], &key)) Py_RETURN_FALSE;
    if (key.root == self->rank) {
        if (!collecting(self, args, &send, &recv, &key.nbytes)) Py_RETURN_FALSE;
    } else {
        if (!plain(args[0], &send)) Py_RETURN_FALSE;
        key.nbytes = send.nbytes;
    }
    return run(self, &key, send.data, recv.data, go, args, 2);
}

static PyObject *scatter(CallsObject *self, PyObject *const *args, Py_ssize_t n, mode go) {
    array send = {0}, recv = {0};
    entry key = {.collective = HAN_C_SCATTER};
    if (few(n, 3)) return NULL;
    if (!root_of(args[2], &key)) Py_RETURN_FALSE;
    if (key.root != self->rank) {
        if (!plain_writable(args[1], &recv)) Py_RETURN_FALSE;
        key.nbytes = recv.nbytes;
        return run(self, &key, NULL, recv.data, go, args, 2);
    }
    if (!plain(args[0], &send) || !block_of(self, args[0], &send, &key.nbytes)) Py_RETURN_FALSE;
    if (args[1] == self->in_place)
        recv.data = send.data + key.nbytes * (uint64_t)self->rank;
    else if (!plain_writable(args[1], &recv) || recv.nbytes != key.nbytes || !apart(&send, &recv))
        Py_RETURN_FALSE;
    return run(self, &key, send.data, recv.data, go, args, 2);
}

static PyObject *allgather(CallsObject *self, PyObject *const *args, Py_ssize_t n, mode go) {
    array send, recv;
    entry key = {.collective = HAN_C_ALLGATHER};
    if (few(n, 2)) return NULL;
    if (!collecting(self, args, &send, &recv, &key.nbytes)) Py_RETURN_FALSE;
    return run(self, &key, send.data, recv.data, go, args, 2);
}

static PyObject *alltoall(CallsObject *self, PyObject *const *args, Py_ssize_t n, mode go) {
    array send, recv;
    uint64_t sent;
    entry key = {.collective = HAN_C_ALLTOALL};
    if (few(n, 2)) return NULL;
    if (!plain_writable(args[1], &recv) || !block_of(self, args[1], &recv, &key.nbytes))
        Py_RETURN_FALSE;
    key.root = args[0] == self->in_place; /* another plan: there is no root to tell apart */
    if (key.root)
        send = recv;
    else if (!plain(args[0], &send) || !block_of(self, args[0], &send, &sent) ||
             sent != key.nbytes || !apart(&send, &recv))
        Py_RETURN_FALSE;
    return run(self, &key, send.data, recv.data, go, args, 2);
}

static PyObject *reduce_scatter_block(CallsObject *self, PyObject *const *args, Py_ssize_t n,
                                      mode go) {
    array send, recv;
    entry key = {.collective = HAN_C_REDUCE_SCATTER};
    if (few(n, 3)) return NULL;
    if (!plain_writable(args[1], &recv)) Py_RETURN_FALSE;
    if (args[0] == self->in_place) {
        if (!block_of(self, args[1], &recv, &key.nbytes)) Py_RETURN_FALSE;
        send = recv;
        key.root = 1; /* as for alltoall */
    } else {
        if (!plain(args[0], &send) || !block_of(self, args[0], &send, &key.nbytes) ||
            key.nbytes != recv.nbytes || send.dtype != recv.dtype || !apart(&send, &recv))
            Py_RETURN_FALSE;
    }
    key.dtype = recv.dtype;
    key.op = args[2];
    return run(self, &key, send.data, recv.data, go, args, 2);
}

#define DEFINE_METHODS(NAME)                                                                  \
    static PyObject *calls_##NAME(CallsObject *self, PyObject *const *args, Py_ssize_t n) {   \
        return NAME(self, args, n, blocking);                                                 \
    }                                                                                         \
    static PyObject *calls_i##NAME(CallsObject *self, PyObject *const *args, Py_ssize_t n) {  \
        return NAME(self, args, n, nonblocking);                                              \
    }

DEFINE_METHODS(bcast)
DEFINE_METHODS(reduce)
DEFINE_METHODS(allreduce)
DEFINE_METHODS(gather)
DEFINE_METHODS(scatter)
DEFINE_METHODS(allgather)
DEFINE_METHODS(alltoall)
DEFINE_METHODS(reduce_scatter_block)

static PyObject *calls_barrier(CallsObject *self, PyObject *unused) {
    (void)unused;
    return barrier(self, blocking);
}

static PyObject *calls_ibarrier(CallsObject *self, PyObject *unused) {
    (void)unused;
    return barrier(self, nonblocking);
}

static PyObject *calls_clear(CallsObject *self, PyObject *unused) {
    (void)unused;
    for (int k = 0; k < SLOTS; k++) {
        entry old = self->slots[k];
        self->slots[k] = (entry){0};
        Py_XDECREF(old.op);
        Py_XDECREF(old.plan);
    }
    self->used = 0;
    Py_RETURN_NONE;
}

/* add(plan, collective, nbytes, dtype number, op or None, root) */
static PyObject *calls_add(CallsObject *self, PyObject *args) {
    entry key = {0};
    PyObject *plan, *op;
    unsigned long long nbytes;
    if (!PyArg_ParseTuple(args, "O!iKiOi", &PlanType, &plan, &key.collective, &nbytes, &key.dtype,
                          &op, &key.root))
        return NULL;
    key.nbytes = nbytes;
    key.op = op == Py_None ? NULL : op;
    if (self->used == MOST) Py_XDECREF(calls_clear(self, NULL));
    entry *slot = find(self, &key);
    if (slot->plan) Py_RETURN_NONE;
    Py_XINCREF(key.op);
    Py_INCREF(plan);
    key.plan = (PlanObject *)plan;
    *slot = key;
    self->used++;
    Py_RETURN_NONE;
}

static int calls_init(CallsObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *engine, *in_place, *request;
    static char *names[] = {"engine", "in_place", "request", "rank", "size", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOii", names, &EngineType, &engine, &in_place,
                                     &request, &self->rank, &self->size))
        return -1;
    Py_INCREF(engine);
    Py_INCREF(in_place);
    Py_INCREF(request);
    self->request = request;
    self->engine = (EngineObject *)engine;
    self->in_place = in_place;
    return 0;
}

static int calls_traverse(CallsObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->engine);
    for (int k = 0; k < SLOTS; k++) Py_VISIT(self->slots[k].op);
    return 0;
}

static int calls_tp_clear(CallsObject *self) {
    Py_XDECREF(calls_clear(self, NULL));
    Py_CLEAR(self->engine);
    return 0;
}

static void calls_dealloc(CallsObject *self) {
    PyObject_GC_UnTrack(self);
    (void)calls_tp_clear(self);
    Py_XDECREF(self->in_place);
    Py_XDECREF(self->request);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

#define QUICK(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL
static PyObject *module_let_attach(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    han_let_attach();
    Py_RETURN_NONE;
}

static PyObject *module_peek(PyObject *self, PyObject *args) {
    (void)self;
    long long pid;
    unsigned long long address, value = 0;
    if (!PyArg_ParseTuple(args, "LK", &pid, &address)) return NULL;
    errno = han_pull(pid, &value, address, sizeof value);
    return errno ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromUnsignedLongLong(value);
}

static PyObject *module_poke(PyObject *self, PyObject *args) {
    (void)self;
    long long pid;
    unsigned long long address, value;
    if (!PyArg_ParseTuple(args, "LKK", &pid, &address, &value)) return NULL;
    errno = han_push(pid, address, &value, sizeof value);
    if (errno) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

#define BOTH(NAME, ARGUMENTS)                                           \
    {#NAME, QUICK(calls_##NAME), #NAME ARGUMENTS ": likewise."},         \
    {"i" #NAME, QUICK(calls_i##NAME), "i" #NAME ARGUMENTS ": the started request, or False."}

static PyMethodDef calls_methods[] = {
    {"bcast", QUICK(calls_bcast), "bcast(buf, root): whether it could be run."},
    {"reduce", QUICK(calls_reduce), "reduce(send, recv, op, root, at_root): likewise."},
    {"allreduce", QUICK(calls_allreduce), "allreduce(send, recv, op): likewise."},
    {"barrier", (PyCFunction)calls_barrier, METH_NOARGS, "barrier(): likewise."},
    BOTH(gather, "(send, recv, root)"),
    BOTH(scatter, "(send, recv, root)"),
    BOTH(allgather, "(send, recv)"),
    BOTH(alltoall, "(send, recv)"),
    BOTH(reduce_scatter_block, "(send, recv, op)"),
    {"ibcast", QUICK(calls_ibcast), "ibcast(buf, root): the started request, or False."},
    {"ireduce", QUICK(calls_ireduce), "ireduce(send, recv, op, root, at_root): likewise."},
    {"iallreduce", QUICK(calls_iallreduce), "iallreduce(send, recv, op): likewise."},
    {"ibarrier", (PyCFunction)calls_ibarrier, METH_NOARGS, "ibarrier(): likewise."},
    {"add", (PyCFunction)calls_add, METH_VARARGS,
     "add(plan, collective, nbytes, dtype number, op or None, root): remember a plan."},
    {"clear", (PyCFunction)calls_clear, METH_NOARGS, "Forget all plans."},
    {NULL, NULL, 0, NULL},
};

static PyObject *calls_get_hits(CallsObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->hits);
}

static PyGetSetDef calls_getset[] = {
    {"hits", (getter)calls_get_hits, NULL, "Calls that found their plan here.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject CallsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Calls",
    .tp_basicsize = sizeof(CallsObject),
    .tp_dealloc = (destructor)calls_dealloc,
    .tp_traverse = (traverseproc)calls_traverse,
    .tp_clear = (inquiry)calls_tp_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Plans of blocking calls by what was called.",
    .tp_methods = calls_methods,
    .tp_getset = calls_getset,
    .tp_init = (initproc)calls_init,
    .tp_new = PyType_GenericNew,
};

static PyObject *module_isa(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyUnicode_FromString(han_kernels_isa());
}

static PyObject *module_on_mesh(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyBool_FromLong(han_on_mesh());
}

static PyObject *module_has_kernel(PyObject *self, PyObject *args) {
    (void)self;
    int op, dtype;
    if (!PyArg_ParseTuple(args, "ii", &op, &dtype)) return NULL;
    bool known = op >= 0 && op < HAN_OPS && dtype >= 0 && dtype < HAN_DTYPES;
    return PyBool_FromLong(known && han_reduce_kernel((enum han_op)op, (enum han_dtype)dtype));
}

static PyObject *module_progress(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS
    han_progress_others(NULL);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *module_orphans(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return han_py_orphans();
}

static PyObject *module_inside_op(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyBool_FromLong(han_inside_op());
}

static PyMethodDef module_methods[] = {
    {"progress", module_progress, METH_NOARGS, "Step every collective that is under way."},
    {"orphans", module_orphans, METH_NOARGS, "Requests that were dropped while they run."},
    {"inside_op", module_inside_op, METH_NOARGS, "Whether a user's reduction is running here."},
    {"isa", module_isa, METH_NOARGS, "The instruction set the reduction kernels use here."},
    {"on_mesh", module_on_mesh, METH_NOARGS, "Whether lines are slow from core to core here."},
    {"let_attach", module_let_attach, METH_NOARGS,
     "Let the other ranks read this process's memory, as far as the system does."},
    {"peek", module_peek, METH_VARARGS,
     "peek(pid, address): 8 bytes of another process's memory; raises OSError."},
    {"poke", module_poke, METH_VARARGS, "poke(pid, address, value): write a word to another process."},
    {"fence", (PyCFunction)(void (*)(void))han_py_fence, METH_VARARGS | METH_KEYWORDS,
     "Raise ValueError unless a Program keeps to its memory (native/fence.h)."},
    {"has_kernel", module_has_kernel, METH_VARARGS,
     "has_kernel(op, dtype): whether MPI defines that pair and han has it natively."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "han._native", .m_doc = "han's executor.", .m_size = -1,
    .m_methods = module_methods,
};

static int add_type(PyObject *m, const char *name, PyTypeObject *type) {
    return PyType_Ready(type) || PyModule_AddObjectRef(m, name, (PyObject *)type) ? -1 : 0;
}

PyMODINIT_FUNC PyInit__native(void) {
    import_array();
    PyObject *m = PyModule_Create(&module);
    if (!m || add_type(m, "Engine", &EngineType) || add_type(m, "Plan", &PlanType) ||
        add_type(m, "Request", &RequestType) || add_type(m, "Calls", &CallsType) ||
        PyModule_AddIntConstant(m, "MAX_STREAMS", HAN_MAX_STREAMS) ||
        PyModule_AddIntConstant(m, "EPOCH_TAGS", HAN_EPOCH_TAGS) ||
        PyModule_AddIntConstant(m, "MAX_CHANNELS", HAN_MAX_CHANNELS) ||
        PyModule_AddIntConstant(m, "SMALL_BANKS", HAN_SMALL_BANKS) || han_py_add_arena(m) ||
        han_py_add_kernels(m) || han_py_add_mapping(m))
        return NULL;
    return m;
}
