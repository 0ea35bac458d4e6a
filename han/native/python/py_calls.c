/* The look-up of calls. A method of han.Comm finds the plan with one look-up, if the reader knows the
 * spelling of the arguments and a call of this size, type and operation was made before. For all
 * other arguments, wrong ones too, the method returns False. The caller then parses the arguments
 * (han/message) and plans the call. */
#include "python/py_calls.h"

#include "python/look_up.h"
#include "python/py_engine.h"
#include "python/py_plan.h"
#include "python/py_reader.h"
#include "python/py_request.h"
#include "python/py_request_methods.h"
#include "python/py_run.h"

typedef struct {
    PyObject_HEAD
    EngineObject *engine;
    ReaderObject *reader;
    PyObject *request; /* the class of requests that nonblocking calls return */
    int32_t rank, size;
    unsigned long long hits; /* calls that found their plan here */
    han_look_up plans;
} CallsObject;

/* What is read of the arguments of a call. */
typedef struct {
    han_buffer send, recv;
    han_entry key;
} call;

/* Run a plan: to its end, or as a request that owns the memory of the buffers. */
typedef PyObject *(*mode)(CallsObject *, PlanObject *, const call *);

static PyObject *blocking(CallsObject *self, PlanObject *plan, const call *c) {
    PyObject *const kept[] = {c->send.owner, c->recv.owner};
    if (han_py_run(self->engine, plan, c->send.data, c->recv.data, kept, 2)) return NULL;
    Py_RETURN_TRUE;
}

static PyObject *or_none(PyObject *o) { return o ? o : Py_None; }

static PyObject *nonblocking(CallsObject *self, PlanObject *plan, const call *c) {
    PyObject *kept = PyTuple_Pack(2, or_none(c->send.owner), or_none(c->recv.owner));
    if (!kept) return NULL;
    PyObject *request = han_py_request((PyTypeObject *)self->request, self->engine, plan,
                                       c->send.data, c->recv.data, kept);
    if (!request) return NULL;
    PyObject *started = han_py_start(request);
    Py_XDECREF(started);
    if (!started) Py_CLEAR(request);
    return request;
}

/* Whether this rank could offer an alternative that is not made yet. */
static bool lacks_alternative(const han_plan *p, const call *c) {
    return p->arena_size && !p->alternative && han_in_arena(p, c->send.data) &&
           han_in_arena(p, c->recv.data);
}

/* Whether the rival is not made yet: the second blocking call makes it. */
static bool lacks_rival(const han_plan *p, mode go) {
    return go == blocking && p->tried && !p->rival;
}

/* The result of `go`, False if the plan must be made first, or NULL with an exception. */
static PyObject *run(CallsObject *self, const call *c, mode go) {
    PlanObject *found = han_look_up_find(&self->plans, &c->key)->plan;
    if (!found || lacks_alternative(&found->plan, c) || lacks_rival(&found->plan, go))
        Py_RETURN_FALSE;
    self->hits++;
    return go(self, found, c);
}

/* Reads the arguments of one collective; false if they are refused. */
typedef bool (*reading)(const CallsObject *, PyObject *const *args, call *);

static inline PyObject *serve(CallsObject *self, PyObject *const *args, reading read, mode go) {
    call c; /* small parts are cleared faster than the whole */
    c.send = c.recv = (han_buffer){0};
    c.key = (han_entry){0};
    PyObject *answer = read(self, args, &c) ? run(self, &c, go) : Py_NewRef(Py_False);
    Py_XDECREF(c.send.owner);
    Py_XDECREF(c.recv.owner);
    return answer;
}

/* ---- arguments ---------------------------------------------------------------------------- */

static bool root_of(PyObject *o, han_entry *key) {
    uint64_t root;
    if (!han_py_whole(o, &root) || root > INT32_MAX) return false;
    key->root = (int32_t)root;
    return true;
}

static bool says_in_place(const CallsObject *self, const PyObject *o) {
    return han_says_in_place(self->reader, o);
}

/* Use the memory of one buffer for the other too. */
static void share(han_buffer *with, const han_buffer *b) {
    *with = *b;
    with->owner = NULL;
}

static bool reads(const CallsObject *self, PyObject *o, han_buffer *b) {
    return han_py_read(self->reader, o, 1, b);
}

static bool writes(const CallsObject *self, PyObject *o, han_buffer *b) {
    return reads(self, o, b) && !b->readonly;
}

/* Read a buffer that holds a block of `nbytes` for each rank. */
static bool divides(const CallsObject *self, PyObject *o, han_buffer *b, uint64_t *nbytes) {
    uint64_t size = (uint64_t)self->size;
    if (!han_py_read(self->reader, o, size, b)) return false;
    *nbytes = b->nbytes / size;
    return b->nbytes % (size * b->element->size) == 0;
}

static bool apart(const call *c) {
    const han_buffer *a = &c->send, *b = &c->recv;
    return !a->nbytes || !b->nbytes || a->data + a->nbytes <= b->data ||
           b->data + b->nbytes <= a->data;
}

/* The facts of a reduction of `nbytes` of these elements; false if they are no numbers. */
static bool reduces(call *c, uint64_t nbytes, const han_element *element, PyObject *op) {
    c->key.nbytes = nbytes;
    c->key.kind = element->kind;
    c->key.handle = element->handle;
    c->key.op = op;
    return element->kind >= 0;
}

/* Read an operand, and the memory for the result, which may hold the operand. */
static bool combines(const CallsObject *self, PyObject *const *args, call *c) {
    if (!writes(self, args[1], &c->recv)) return false;
    if (says_in_place(self, args[0])) {
        share(&c->send, &c->recv);
        return true;
    }
    return reads(self, args[0], &c->send) && c->send.nbytes == c->recv.nbytes &&
           c->send.element->kind == c->recv.element->kind && apart(c);
}

/* Read the arguments of a rank that receives all blocks. Its own block is in `send`, or in place in
 * `recv`. */
static bool collects(const CallsObject *self, PyObject *const *args, call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    if (!divides(self, args[1], &c->recv, nbytes) || c->recv.readonly) return false;
    if (says_in_place(self, args[0])) {
        c->send.data = c->recv.data + *nbytes * (uint64_t)self->rank;
        return true;
    }
    return reads(self, args[0], &c->send) && c->send.nbytes == *nbytes && apart(c);
}

/* ---- collectives -------------------------------------------------------------------------- */

static bool barrier(const CallsObject *self, PyObject *const *args, call *c) {
    (void)self, (void)args;
    c->key.collective = HAN_C_BARRIER;
    return true;
}

/* buf, root */
static bool bcast(const CallsObject *self, PyObject *const *args, call *c) {
    c->key.collective = HAN_C_BCAST;
    if (!root_of(args[1], &c->key) || !reads(self, args[0], &c->recv)) return false;
    if (c->recv.readonly && c->key.root != self->rank) return false;
    share(&c->send, &c->recv);
    c->key.nbytes = c->recv.nbytes;
    return true;
}

/* send, recv, op */
static bool allreduce(const CallsObject *self, PyObject *const *args, call *c) {
    c->key.collective = HAN_C_ALLREDUCE;
    return combines(self, args, c) && reduces(c, c->recv.nbytes, c->recv.element, args[2]);
}

/* send, recv, op, root */
static bool reduce(const CallsObject *self, PyObject *const *args, call *c) {
    c->key.collective = HAN_C_REDUCE;
    if (!root_of(args[3], &c->key)) return false;
    bool read = c->key.root == self->rank ? combines(self, args, c) : reads(self, args[0], &c->send);
    return read && reduces(c, c->send.nbytes, c->send.element, args[2]);
}

/* send, recv, root */
static bool gather(const CallsObject *self, PyObject *const *args, call *c) {
    c->key.collective = HAN_C_GATHER;
    if (!root_of(args[2], &c->key)) return false;
    if (c->key.root == self->rank) return collects(self, args, c);
    if (!reads(self, args[0], &c->send)) return false;
    c->key.nbytes = c->send.nbytes;
    return true;
}

/* send, recv, root */
static bool scatter(const CallsObject *self, PyObject *const *args, call *c) {
    uint64_t *nbytes = &c->key.nbytes;
    c->key.collective = HAN_C_SCATTER;
    if (!root_of(args[2], &c->key)) return false;
    if (c->key.root != self->rank) {
        if (!writes(self, args[1], &c->recv)) return false;
        *nbytes = c->recv.nbytes;
        return true;
    }
    if (!divides(self, args[0], &c->send, nbytes)) return false;
    if (says_in_place(self, args[1])) {
        c->recv.data = c->send.data + *nbytes * (uint64_t)self->rank;
        return true;
    }
    return writes(self, args[1], &c->recv) && c->recv.nbytes == *nbytes && apart(c);
}

/* send, recv */
static bool allgather(const CallsObject *self, PyObject *const *args, call *c) {
    c->key.collective = HAN_C_ALLGATHER;
    return collects(self, args, c);
}

/* send, recv */
static bool alltoall(const CallsObject *self, PyObject *const *args, call *c) {
    uint64_t sent;
    c->key.collective = HAN_C_ALLTOALL;
    if (!divides(self, args[1], &c->recv, &c->key.nbytes) || c->recv.readonly) return false;
    if (says_in_place(self, args[0])) {
        c->key.root = 1; /* no root here: tells in-place calls from others */
        share(&c->send, &c->recv);
        return true;
    }
    return divides(self, args[0], &c->send, &sent) && sent == c->key.nbytes && apart(c);
}

/* send, recv, op */
static bool reduce_scatter_block(const CallsObject *self, PyObject *const *args, call *c) {
    uint64_t nbytes;
    c->key.collective = HAN_C_REDUCE_SCATTER;
    if (says_in_place(self, args[0])) {
        c->key.root = 1; /* as in alltoall */
        if (!divides(self, args[1], &c->recv, &nbytes) || c->recv.readonly) return false;
        share(&c->send, &c->recv);
    } else if (!writes(self, args[1], &c->recv) || !divides(self, args[0], &c->send, &nbytes) ||
               nbytes != c->recv.nbytes || c->send.element->kind != c->recv.element->kind ||
               !apart(c)) {
        return false;
    }
    return reduces(c, nbytes, c->recv.element, args[2]);
}

/* ---- han._native.Calls -------------------------------------------------------------------- */

static int few(Py_ssize_t n, Py_ssize_t expected) {
    if (n == expected) return 0;
    PyErr_Format(PyExc_TypeError, "%zd arguments, %zd expected", n, expected);
    return -1;
}

#define DEFINE_METHODS(NAME, ARGUMENTS)                                                       \
    static PyObject *calls_##NAME(CallsObject *self, PyObject *const *args, Py_ssize_t n) {   \
        return few(n, ARGUMENTS) ? NULL : serve(self, args, NAME, blocking);                  \
    }                                                                                         \
    static PyObject *calls_i##NAME(CallsObject *self, PyObject *const *args, Py_ssize_t n) {  \
        return few(n, ARGUMENTS) ? NULL : serve(self, args, NAME, nonblocking);               \
    }

DEFINE_METHODS(barrier, 0)
DEFINE_METHODS(bcast, 2)
DEFINE_METHODS(reduce, 4)
DEFINE_METHODS(allreduce, 3)
DEFINE_METHODS(gather, 3)
DEFINE_METHODS(scatter, 3)
DEFINE_METHODS(allgather, 2)
DEFINE_METHODS(alltoall, 2)
DEFINE_METHODS(reduce_scatter_block, 3)

static PyObject *calls_clear(CallsObject *self, PyObject *unused) {
    (void)unused;
    han_look_up_clear(&self->plans);
    Py_RETURN_NONE;
}

/* add(plan, collective, root, op or None, (nbytes, kind, handle)) */
static PyObject *calls_add(CallsObject *self, PyObject *args) {
    han_entry entry = {0};
    PyObject *plan, *op;
    unsigned long long nbytes, handle;
    if (!PyArg_ParseTuple(args, "O!iiO(KiK)", &PlanType, &plan, &entry.collective, &entry.root,
                          &op, &nbytes, &entry.kind, &handle))
        return NULL;
    entry.nbytes = nbytes;
    entry.handle = handle;
    entry.op = op == Py_None ? NULL : op;
    entry.plan = (PlanObject *)plan;
    han_look_up_add(&self->plans, &entry);
    Py_RETURN_NONE;
}

static int calls_init(CallsObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *engine, *reader, *request;
    static char *names[] = {"engine", "reader", "request", "rank", "size", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!ii", names, &EngineType, &engine,
                                     &ReaderType, &reader, &PyType_Type, &request, &self->rank,
                                     &self->size))
        return -1;
    self->engine = (EngineObject *)Py_NewRef(engine);
    self->reader = (ReaderObject *)Py_NewRef(reader);
    self->request = Py_NewRef(request);
    return 0;
}

static int calls_traverse(CallsObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->engine);
    for (int k = 0; k < HAN_LOOK_UP_SLOTS; k++) Py_VISIT(self->plans.slots[k].op);
    return 0;
}

static int calls_tp_clear(CallsObject *self) {
    han_look_up_clear(&self->plans);
    Py_CLEAR(self->engine);
    return 0;
}

static void calls_dealloc(CallsObject *self) {
    PyObject_GC_UnTrack(self);
    (void)calls_tp_clear(self);
    Py_XDECREF(self->reader);
    Py_XDECREF(self->request);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

#define QUICK(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL
#define BOTH(NAME, PARAMETERS)                                                        \
    {#NAME, QUICK(calls_##NAME),                                                      \
     #NAME "($self" PARAMETERS ", /)\n--\n\n"                                       \
     "Run the call; False if the caller must parse and plan it."},                    \
    {"i" #NAME, QUICK(calls_i##NAME),                                                 \
     "i" #NAME "($self" PARAMETERS ", /)\n--\n\nReturn the started request, or False."}

static PyMethodDef calls_methods[] = {
    BOTH(barrier, ""),
    BOTH(bcast, ", buf, root"),
    BOTH(reduce, ", send, recv, op, root"),
    BOTH(allreduce, ", send, recv, op"),
    BOTH(gather, ", send, recv, root"),
    BOTH(scatter, ", send, recv, root"),
    BOTH(allgather, ", send, recv"),
    BOTH(alltoall, ", send, recv"),
    BOTH(reduce_scatter_block, ", send, recv, op"),
    {"add", (PyCFunction)calls_add, METH_VARARGS,
     "add($self, plan, collective, root, op, facts, /)\n--\n\n"
     "Enter a plan; `op` may be None, `facts` are (bytes, kind, handle)."},
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
    .tp_doc = "Calls(engine, reader, request, rank, size)\n--\n\n"
              "The look-up of plans by the arguments of calls; `request` is the class of requests.",
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
