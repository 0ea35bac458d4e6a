/* The look-up of calls on plain arrays. A method of han.Comm finds the plan with one look-up and
 * without an allocation, if the arguments are plain arrays of a size, type and operation that
 * were used before. For all other arguments, wrong ones too, the method returns False. The
 * caller then parses the arguments (han/message) and plans the call. */
#include "python/py_calls.h"

#include "python/plain_array.h"
#include "python/py_engine.h"
#include "python/py_plan.h"
#include "python/py_request.h"
#include "python/py_request_methods.h"
#include "python/py_run.h"

enum { SLOTS = 512, MOST = SLOTS / 2, OCTAVES = 65 };

typedef struct {
    uint64_t nbytes; /* of a call; of an entry: the bound of its class */
    PyObject *op; /* compared by identity; owned */
    int32_t collective, root, dtype;
    PlanObject *plan; /* NULL: an empty slot */
} entry;

typedef struct {
    PyObject_HEAD
    EngineObject *engine;
    PyObject *in_place;
    PyObject *request; /* the class of requests that nonblocking calls return */
    int32_t rank, size;
    uint32_t used;
    unsigned long long hits; /* calls that found their plan here */
    uint64_t *bounds; /* of classes of sizes, ascending; 0 behind the last one */
    uint16_t octaves[OCTAVES]; /* by the bits of a size: where a search for its bound begins */
    entry slots[SLOTS];
} CallsObject;

/* The bound of the class of a size; the size itself if it has no class. */
static uint64_t bound_of(const CallsObject *self, uint64_t nbytes) {
    if (!nbytes) return 0;
    const uint64_t *bound = &self->bounds[self->octaves[64 - __builtin_clzll(nbytes)]];
    while (*bound && *bound < nbytes) bound++;
    return *bound ? *bound : nbytes;
}

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

/* Run a plan: to its end, or as a request that owns the objects in `keep`. */
typedef PyObject *(*mode)(CallsObject *, PlanObject *, const void *send, void *recv,
                          uint64_t nbytes, PyObject *const *keep, Py_ssize_t n);

static PyObject *blocking(CallsObject *self, PlanObject *plan, const void *send, void *recv,
                          uint64_t nbytes, PyObject *const *keep, Py_ssize_t n) {
    if (han_py_run(self->engine, plan, send, recv, nbytes, keep, n)) return NULL;
    Py_RETURN_TRUE;
}

static PyObject *nonblocking(CallsObject *self, PlanObject *plan, const void *send, void *recv,
                             uint64_t nbytes, PyObject *const *keep, Py_ssize_t n) {
    PyObject *kept = n ? PyTuple_Pack(n, keep[0], keep[n - 1]) : PyTuple_New(0);
    if (!kept) return NULL;
    PyObject *request = han_py_request((PyTypeObject *)self->request, self->engine, plan, send,
                                       recv, nbytes, kept);
    if (!request) return NULL;
    PyObject *started = han_py_start(request);
    Py_XDECREF(started);
    if (!started) Py_CLEAR(request);
    return request;
}

/* Whether this rank could offer an alternative that is not made yet. */
static bool lacks_alternative(const han_plan *p, const void *send, const void *recv) {
    return p->arena_size && !p->alternative && han_in_arena(p, send) && han_in_arena(p, recv);
}

/* Whether the rival is not made yet: the second blocking call makes it. */
static bool lacks_rival(const han_plan *p, mode go) {
    return go == blocking && p->tried && !p->rival;
}

/* The result of `go`, False if the plan must be made first, or NULL with an exception. */
static PyObject *run(CallsObject *self, const entry *key, const void *send, void *recv, mode go,
                     PyObject *const *keep, Py_ssize_t n) {
    entry class = *key;
    class.nbytes = bound_of(self, key->nbytes);
    const entry *hit = find(self, &class);
    if (!hit->plan || lacks_alternative(&hit->plan->plan, send, recv)) Py_RETURN_FALSE;
    if (lacks_rival(&hit->plan->plan, go)) Py_RETURN_FALSE;
    self->hits++;
    return go(self, hit->plan, send, recv, key->nbytes, keep, n);
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
    /* The parser accepts a read-only array at the root. */
    if (!plain_writable(args[0], &buf) || !root_of(args[1], &key)) Py_RETURN_FALSE;
    key.nbytes = buf.nbytes;
    return run(self, &key, buf.data, buf.data, go, args, 1);
}

static PyObject *allreduce(CallsObject *self, PyObject *const *args, Py_ssize_t n, mode go) {
    array send, recv;
    entry key = {.collective = HAN_C_ALLREDUCE};
    if (few(n, 3)) return NULL;
    if (!plain_writable(args[1], &recv)) Py_RETURN_FALSE;
    if (says(self->in_place, args[0]))
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
        if (says(self->in_place, args[0]))
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

/* The arguments of a rank that receives all blocks. Its own block is in `send`, or in place in
 * `recv`. */
static bool collecting(const CallsObject *self, PyObject *const *args, array *send, array *recv,
                       uint64_t *nbytes) {
    if (!plain_writable(args[1], recv) || !block_of(self->size, args[1], recv, nbytes))
        return false;
    if (says(self->in_place, args[0])) {
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
    if (!plain(args[0], &send) || !block_of(self->size, args[0], &send, &key.nbytes))
        Py_RETURN_FALSE;
    if (says(self->in_place, args[1]))
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
    if (!plain_writable(args[1], &recv) || !block_of(self->size, args[1], &recv, &key.nbytes))
        Py_RETURN_FALSE;
    key.root = says(self->in_place, args[0]); /* no root here: tells in-place calls from others */
    if (key.root)
        send = recv;
    else if (!plain(args[0], &send) || !block_of(self->size, args[0], &send, &sent) ||
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
    if (says(self->in_place, args[0])) {
        if (!block_of(self->size, args[1], &recv, &key.nbytes)) Py_RETURN_FALSE;
        send = recv;
        key.root = 1; /* as in alltoall */
    } else {
        if (!plain(args[0], &send) || !block_of(self->size, args[0], &send, &key.nbytes) ||
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

/* add(plan, collective, bound of its class, dtype number, op or None, root) */
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

static int fill_bounds(CallsObject *self, PyObject *bounds) {
    Py_ssize_t n = PyTuple_GET_SIZE(bounds);
    self->bounds = PyMem_Calloc((size_t)n + 1, sizeof *self->bounds);
    if (!self->bounds) return -1;
    for (Py_ssize_t k = 0; k < n; k++)
        self->bounds[k] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(bounds, k));
    for (int bits = 1, k = 0; bits < OCTAVES; bits++) {
        while (self->bounds[k] && self->bounds[k] < UINT64_C(1) << (bits - 1)) k++;
        self->octaves[bits] = (uint16_t)k;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int calls_init(CallsObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *engine, *in_place, *request, *bounds;
    static char *names[] = {"engine", "in_place", "request", "rank", "size", "bounds", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!iiO!", names, &EngineType, &engine,
                                     &in_place, &PyType_Type, &request, &self->rank, &self->size,
                                     &PyTuple_Type, &bounds) ||
        fill_bounds(self, bounds))
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
    PyMem_Free(self->bounds);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

#define QUICK(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL
#define BOTH(NAME, PARAMETERS)                                                        \
    {#NAME, QUICK(calls_##NAME),                                                      \
     #NAME "($self, " PARAMETERS ", /)\n--\n\n"                                       \
     "Run the call; False if the caller must parse and plan it."},                    \
    {"i" #NAME, QUICK(calls_i##NAME),                                                 \
     "i" #NAME "($self, " PARAMETERS ", /)\n--\n\nReturn the started request, or False."}

static PyMethodDef calls_methods[] = {
    BOTH(bcast, "buf, root"),
    BOTH(reduce, "send, recv, op, root, at_root"),
    BOTH(allreduce, "send, recv, op"),
    BOTH(gather, "send, recv, root"),
    BOTH(scatter, "send, recv, root"),
    BOTH(allgather, "send, recv"),
    BOTH(alltoall, "send, recv"),
    BOTH(reduce_scatter_block, "send, recv, op"),
    {"barrier", (PyCFunction)calls_barrier, METH_NOARGS,
     "barrier($self, /)\n--\n\nRun the call; False if the caller must parse and plan it."},
    {"ibarrier", (PyCFunction)calls_ibarrier, METH_NOARGS,
     "ibarrier($self, /)\n--\n\nReturn the started request, or False."},
    {"add", (PyCFunction)calls_add, METH_VARARGS,
     "add($self, plan, collective, bound, dtype, op, root, /)\n--\n\n"
     "Enter a plan; `dtype` is NumPy's type number, `op` may be None."},
    {"clear", (PyCFunction)calls_clear, METH_NOARGS,
     "clear($self, /)\n--\n\nRemove all plans."},
    {NULL, NULL, 0, NULL},
};

static PyObject *calls_get_hits(CallsObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->hits);
}

static PyGetSetDef calls_getset[] = {
    {"hits", (getter)calls_get_hits, NULL, "The number of calls that found their plan here.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject CallsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Calls",
    .tp_basicsize = sizeof(CallsObject),
    .tp_dealloc = (destructor)calls_dealloc,
    .tp_traverse = (traverseproc)calls_traverse,
    .tp_clear = (inquiry)calls_tp_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Calls(engine, in_place, request, rank, size, bounds)\n--\n\n"
              "The look-up of plans by the arguments of calls; `request` is the class of requests,\n"
              "`bounds` are those of classes of sizes.",
    .tp_methods = calls_methods,
    .tp_getset = calls_getset,
    .tp_init = (initproc)calls_init,
    .tp_new = PyType_GenericNew,
};

int han_py_add_calls(PyObject *module) {
    import_array1(-1);
    if (PyType_Ready(&CallsType)) return -1;
    return PyModule_AddObjectRef(module, "Calls", (PyObject *)&CallsType);
}
