/* The look-up of calls. A method of han.Comm finds the plan with one look-up, if the reader knows
 * the spelling of the arguments and a call of this size, type and operation was made before. For
 * all other arguments, wrong ones too, the method returns False. The caller then parses the
 * arguments (han/message) and plans the call. */
#include "python/py_calls.h"

#include <string.h>
#include <structmember.h>

#include "python/py_arguments.h"
#include "python/py_delivery.h"
#include "python/py_look_up.h"
#include "python/py_own_blocks.h"
#include "python/py_ref.h"
#include "python/py_request_object.h"
#include "python/py_run.h"

typedef struct {
    PyObject_HEAD
    EngineObject *engine;
    PyObject *request; /* the class of requests that nonblocking calls return */
    han_caller caller;
    PyObject *edges[2];      /* for calls of the C door: see han_py_calls_edges */
    unsigned long long hits; /* calls that found their plan here */
    han_py_look_up plans;
    han_ready *ready; /* requests for calls of the C door */
} CallsObject;

/* Run a plan: to its end, or as a request that owns the memory of the buffers. */
typedef PyObject *(*mode)(CallsObject *, PlanObject *, const han_call *);

/* Run a call to its end; `memory` is that of its copy, or NULL. */
static inline PyObject *run_with(CallsObject *self, PlanObject *plan, const han_call *c,
                                 PyObject *memory) {
    PyObject *const kept[] = {c->send.owner, c->recv.owner, memory};
    if (han_py_run(self->engine, plan, c->send.data, c->recv.data, c->key.nbytes, c->counts, kept,
                   memory ? 3 : 2))
        return NULL;
    Py_RETURN_TRUE;
}

static PyObject *blocking(CallsObject *self, PlanObject *plan, const han_call *c) {
    return run_with(self, plan, c, NULL);
}

/* Start a request, and return it; NULL with an exception. */
static PyObject *started(PyObject *request) {
    PyObject *answer = han_py_start(request);
    Py_XDECREF(answer);
    if (!answer) Py_CLEAR(request);
    return request;
}

static PyObject *nonblocking(CallsObject *self, PlanObject *plan, const han_call *c) {
    PyObject *request = NULL, *sizes = NULL;
    Py_INCREF(plan); /* what is allocated may start a collection, which may empty the look-up */
    PyObject *kept = PyTuple_Pack(2, han_py_or_none(c->send.owner), han_py_or_none(c->recv.owner));
    if (!kept || han_py_sizes_of(&self->caller, c, &sizes))
        Py_XDECREF(kept);
    else
        request = han_py_request((PyTypeObject *)self->request, self->engine, plan, c->send.data,
                                 c->recv.data, c->key.nbytes, sizes, kept);
    Py_XDECREF(sizes);
    Py_DECREF(plan);
    return request ? started(request) : NULL;
}

/* Whether this rank could offer an alternative that is not made yet. */
static bool lacks_alternative(const han_plan *p, const han_call *c) {
    return p->arena_size && !p->alternative && han_in_arena(p, c->send.data) &&
           han_in_arena(p, c->recv.data);
}

/* Run a blocking call that receives in a copy. If it cannot be made, the Python way raises the error,
 * and tells the other ranks. */
static PyObject *run_on_copy(CallsObject *self, PlanObject *plan, const han_call *c) {
    han_call copy;
    PyObject *answer = NULL;
    Py_INCREF(plan); /* another thread may empty the look-up meanwhile */
    PyObject *memory = han_py_copy(&self->caller, c, &copy);
    self->hits += memory != NULL;
    if (!memory)
        answer = Py_NewRef(Py_False);
    else if ((answer = run_with(self, plan, &copy, memory)) &&
             han_py_deliver(&self->caller, c, &copy))
        Py_CLEAR(answer);
    Py_XDECREF(memory);
    Py_DECREF(plan);
    return answer;
}

/* Start a call that receives in a copy, as `run_on_copy` does; the request delivers the result. */
static PyObject *start_on_copy(CallsObject *self, PlanObject *plan, han_call *c) {
    han_call copy;
    PyObject *request = NULL, *sizes = NULL;
    Py_INCREF(plan);
    PyObject *memory = han_py_copy(&self->caller, c, &copy);
    PyObject *deliver =
        memory ? han_py_delivery((PyObject *)self, &self->caller, c, &copy, memory) : NULL;
    if (deliver && !han_py_sizes_of(&self->caller, &copy, &sizes))
        request = han_py_request((PyTypeObject *)self->request, self->engine, plan, copy.send.data,
                                 copy.recv.data, copy.key.nbytes, sizes, Py_NewRef(deliver));
    if (request) han_request_fields(request)->end = Py_NewRef(deliver);
    self->hits += request != NULL;
    Py_XDECREF(sizes);
    Py_XDECREF(deliver);
    Py_DECREF(plan);
    if (!memory) Py_RETURN_FALSE;
    Py_DECREF(memory);
    return request ? started(request) : NULL;
}

/* Whether the operation of an entry was freed: then its handle differs. */
static bool is_freed(const void *reader, const han_entry *e) {
    return e->handle && e->op && han_py_handle(reader, e->op) != e->operation;
}

/* What was entered for a call, whose collective may be that of an `_init`; borrowed; or NULL. */
static inline PyObject *entered(CallsObject *self, const han_call *c, int32_t collective) {
    uint64_t bound = han_py_look_up_bound(&self->plans, c->key.nbytes);
    const han_entry *found =
        han_py_look_up_find(&self->plans, &c->key, collective, bound, c->key.op);
    bool by_han = !found->handle || !found->plan; /* or nothing reduces */
    if (by_han || !is_freed(self->caller.reader, found)) return found->plan;
    han_py_look_up_sweep(&self->plans, is_freed, self->caller.reader);
    return NULL;
}

/* The result of `go`, False if the plan must be made first, or NULL with an exception. */
static PyObject *run(CallsObject *self, han_call *c, mode go) {
    PlanObject *found = (PlanObject *)entered(self, c, c->key.collective);
    if (!found) Py_RETURN_FALSE;
    if (c->use != HAN_DIRECT)
        return go == blocking ? run_on_copy(self, found, c) : start_on_copy(self, found, c);
    if (lacks_alternative(&found->plan, c)) Py_RETURN_FALSE;
    self->hits++;
    return go(self, found, c);
}

/* Make a persistent request, or return False if its class is not known. The function gets the addresses
 * of the buffers, the size, the objects that own the buffers, and the sizes of blocks. */
static PyObject *persistent(CallsObject *self, const han_call *c) {
    PyObject *make = entered(self, c, c->key.collective + HAN_LOOK_UP_INIT);
    if (!make || c->use != HAN_DIRECT || c->copied) Py_RETURN_FALSE;
    PyObject *sizes, *request;
    if (han_py_sizes_of(&self->caller, c, &sizes)) return NULL;
    Py_INCREF(make); /* it may empty the look-up */
    request = PyObject_CallFunction(
        make, "KKK(OO)O", (unsigned long long)(uintptr_t)c->send.data,
        (unsigned long long)(uintptr_t)c->recv.data, (unsigned long long)c->key.nbytes,
        han_py_or_none(c->send.owner), han_py_or_none(c->recv.owner), han_py_or_none(sizes));
    Py_DECREF(make);
    Py_XDECREF(sizes);
    if (request && request != Py_False) self->hits++;
    return request;
}

/* Read the arguments and go on with the call; `go` is NULL for a persistent one. */
static inline PyObject *serve(CallsObject *self, PyObject *const *args, int32_t collective,
                              han_reading *read, mode go) {
    han_call c;
    han_call_clear(&c, collective);
    PyObject *answer = !read(&self->caller, args, &c) ? Py_NewRef(Py_False)
                       : go                           ? run(self, &c, go)
                                                      : persistent(self, &c);
    han_py_release(&c.send);
    han_py_release(&c.recv);
    PyMem_Free(c.counts);
    return answer;
}

/* ---- the C door ----------------------------------------------------------------------------- */

const han_caller *han_py_calls_caller(PyObject *calls) { return &((CallsObject *)calls)->caller; }

EngineObject *han_py_calls_engine(PyObject *calls) { return ((CallsObject *)calls)->engine; }

const han_edges *han_py_calls_edges(PyObject *calls, bool same) {
    CallsObject *self = (CallsObject *)calls;
    return self->edges[same] ? han_edges_of(&self->caller, self->edges[same]) : NULL;
}

static PlanObject *known(CallsObject *self, const han_call *c) {
    uint64_t bound = han_py_look_up_bound(&self->plans, c->key.nbytes);
    const han_entry *found =
        han_py_look_up_find(&self->plans, &c->key, c->key.collective, bound, c->key.op);
    PlanObject *plan = (PlanObject *)found->plan;
    if (!plan || (found->handle && is_freed(self->caller.reader, found)) ||
        (c->use == HAN_DIRECT && lacks_alternative(&plan->plan, c)))
        return NULL;
    return plan;
}

PlanObject *han_py_calls_known(PyObject *calls, const han_call *c) {
    CallsObject *self = (CallsObject *)calls;
    PlanObject *plan = known(self, c);
    self->hits += plan != NULL;
    return plan;
}

PyObject *han_py_calls_ready(PyObject *calls, const han_call *c) {
    CallsObject *self = (CallsObject *)calls;
    const PlanObject *plan = known(self, c);
    PyObject *o = plan ? han_ready_take(self->ready, plan) : NULL;
    if (!o) return NULL;
    request *r = han_request_fields(o);
    r->run = (han_run){.plan = r->run.plan,
                       .send = c->send.data,
                       .recv = c->recv.data,
                       .nbytes = c->key.nbytes,
                       .sizes = r->run.sizes};
    if (r->sizes)
        memcpy(PyBytes_AS_STRING(r->sizes), c->counts, (size_t)PyBytes_GET_SIZE(r->sizes));
    if (han_request_start_again(o)) {
        self->hits++;
        return o;
    }
    han_ready_put(self->ready, &r->ready);
    return NULL;
}

PyObject *han_py_calls_request(PyObject *calls, han_call *c, bool again) {
    CallsObject *self = (CallsObject *)calls;
    if (again) return persistent(self, c);
    const bool direct = c->use == HAN_DIRECT && !c->copied;
    PyObject *o = run(self, c, nonblocking);
    if (!o || o == Py_False || !direct) return o;
    if (!han_ready_has_room(self->ready)) han_ready_clear(self->ready); /* others filled it */
    han_request_return_to(o, self->ready);
    return o;
}

/* ---- han._native.Calls -------------------------------------------------------------------- */

/* X(method, reader, collective, number of arguments, their names) */
#define COLLECTIVES(X)                                                                   \
    X(barrier, barrier, BARRIER, 0, "")                                                  \
    X(bcast, bcast, BCAST, 2, ", buf, root")                                             \
    X(reduce, reduce, REDUCE, 4, ", send, recv, op, root")                               \
    X(allreduce, allreduce, ALLREDUCE, 3, ", send, recv, op")                            \
    X(gather, gather, GATHER, 3, ", send, recv, root")                                   \
    X(scatter, scatter, SCATTER, 3, ", send, recv, root")                                \
    X(allgather, allgather, ALLGATHER, 2, ", send, recv")                                \
    X(alltoall, alltoall, ALLTOALL, 2, ", send, recv")                                   \
    X(reduce_scatter_block, reduce_scatter_block, REDUCE_SCATTER, 3, ", send, recv, op") \
    X(allgatherv, allgatherv, ALLGATHER, 2, ", send, recv")                              \
    X(reduce_scatter, reduce_scatter, REDUCE_SCATTER, 4, ", send, recv, counts, op")     \
    X(gatherv, gatherv, GATHERV, 3, ", send, recv, root")                                \
    X(scatterv, scatterv, SCATTERV, 3, ", send, recv, root")                             \
    X(alltoallv, alltoallv, ALLTOALLV, 2, ", send, recv")                                \
    X(alltoallw, alltoallw, ALLTOALLV, 2, ", send, recv")                                \
    X(neighbours, neighbours, ALLTOALLV, 3, ", ranks, send, recv")                       \
    X(scan, allreduce, SCAN, 3, ", send, recv, op")                                      \
    X(exscan, exscan, EXSCAN, 3, ", send, recv, op")

#define DEFINE_METHOD(METHOD, READER, COLLECTIVE, ARGUMENTS, GO)                              \
    static PyObject *calls_##METHOD(CallsObject *self, PyObject *const *args, Py_ssize_t n) { \
        if (han_expect(#METHOD, n, ARGUMENTS)) return NULL;                                   \
        return serve(self, args, HAN_C_##COLLECTIVE, han_read_##READER, GO);                  \
    }

#define DEFINE_METHODS(NAME, READER, COLLECTIVE, ARGUMENTS, PARAMETERS) \
    DEFINE_METHOD(NAME, READER, COLLECTIVE, ARGUMENTS, blocking)        \
    DEFINE_METHOD(i##NAME, READER, COLLECTIVE, ARGUMENTS, nonblocking)  \
    DEFINE_METHOD(NAME##_init, READER, COLLECTIVE, ARGUMENTS, NULL)

COLLECTIVES(DEFINE_METHODS)
DEFINE_METHOD(recvcounts, recvcounts, ALLGATHER, 2, blocking)
DEFINE_METHOD(gather_up_to, gather_up_to, GATHERV, 3, blocking)

static PyObject *calls_meet(CallsObject *self, PyObject *args) {
    PyObject *own, *same;
    if (!PyArg_ParseTuple(args, "SS", &own, &same)) return NULL;
    Py_XSETREF(self->edges[false], Py_NewRef(own));
    Py_XSETREF(self->edges[true], Py_NewRef(same));
    Py_RETURN_NONE;
}

static PyObject *calls_clear(CallsObject *self, PyObject *Py_UNUSED(none)) {
    han_py_look_up_clear(&self->plans);
    han_ready_clear(self->ready);
    Py_RETURN_NONE;
}

/* add(plan or function, collective, root, op or None, (bound of its class, kind, handle), whether
 * blocks differ in size) */
static PyObject *calls_add(CallsObject *self, PyObject *args) {
    han_entry entry = {0};
    PyObject *plan, *op;
    int uneven;
    unsigned long long nbytes, handle;
    if (!PyArg_ParseTuple(args, "OiiO(KiK)p", &plan, &entry.collective, &entry.root, &op, &nbytes,
                          &entry.kind, &handle, &uneven))
        return NULL;
    if (!PyObject_TypeCheck(plan, &PlanType)) entry.collective += HAN_LOOK_UP_INIT;
    entry.uneven = uneven;
    entry.nbytes = nbytes;
    entry.handle = handle;
    entry.op = op == Py_None ? NULL : op;
    if (entry.op) entry.operation = han_py_handle(self->caller.reader, op);
    entry.plan = plan;
    han_py_look_up_add(&self->plans, &entry, is_freed, self->caller.reader);
    Py_RETURN_NONE;
}

static int calls_init(CallsObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *engine, *reader, *request, *bounds;
    static char *names[] = {"engine", "reader", "request", "rank", "size", "bounds", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!iiO!", names, &EngineType, &engine,
                                     &ReaderType, &reader, &PyType_Type, &request,
                                     &self->caller.rank, &self->caller.size, &PyTuple_Type,
                                     &bounds) ||
        han_py_look_up_open(&self->plans, bounds))
        return -1;
    if (!self->ready && !(self->ready = han_ready_new())) return HAN_NO_MEMORY;
    self->engine = (EngineObject *)Py_NewRef(engine);
    self->caller.reader = (ReaderObject *)Py_NewRef(reader);
    self->request = Py_NewRef(request);
    return 0;
}

static int calls_traverse(CallsObject *self, visitproc visit, void *arg) {
    Py_VISIT(self->engine);
    Py_VISIT(self->caller.reader);
    Py_VISIT(self->request);
    for (uint32_t k = 0; k < self->plans.size; k++) {
        Py_VISIT(self->plans.slots[k].op);
        Py_VISIT(self->plans.slots[k].plan);
    }
    return 0;
}

static int calls_tp_clear(CallsObject *self) {
    han_py_look_up_clear(&self->plans);
    Py_CLEAR(self->engine);
    return 0;
}

static void calls_dealloc(CallsObject *self) {
    PyObject_GC_UnTrack(self);
    (void)calls_tp_clear(self);
    Py_XDECREF(self->caller.reader);
    Py_XDECREF(self->request);
    for (int same = 0; same < 2; same++) Py_XDECREF(self->edges[same]);
    han_py_look_up_close(&self->plans);
    han_ready_close(self->ready);
    han_ready_leave(self->ready);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

#define ENTRIES(NAME, READER, COLLECTIVE, ARGUMENTS, PARAMETERS)                                \
    HAN_METHOD(#NAME, calls_##NAME, METH_FASTCALL, "$self" PARAMETERS ", /",                    \
               "Run the call; False if the caller must parse and plan it."),                    \
        HAN_METHOD("i" #NAME, calls_i##NAME, METH_FASTCALL, "$self" PARAMETERS ", /",           \
                   "Return the started request, or False."),                                    \
        HAN_METHOD(#NAME "_init", calls_##NAME##_init, METH_FASTCALL, "$self" PARAMETERS ", /", \
                   "Return a persistent request, or False."),

static PyMethodDef calls_methods[] = {
    COLLECTIVES(ENTRIES) /* of all calls above */
    HAN_METHOD(
        "recvcounts", calls_recvcounts, METH_FASTCALL, "$self, recv, counts, /",
        "Gather the numbers of elements of the ranks' `recv` into 64-bit numbers; False as above."),
    HAN_METHOD("gather_up_to", calls_gather_up_to, METH_FASTCALL, "$self, send, recv, root, /",
               "Gather blocks of at most an equal part of the root's `recv`; False as above."),
    HAN_METHOD(
        "add", calls_add, METH_VARARGS, "$self, plan, collective, root, op, key, uneven, /",
        "Enter a plan, or a function that makes persistent requests; `op` may be None, `key` is "
        "(bound of its class, kind, handle), `uneven` says whether blocks differ in size."),
    HAN_METHOD("meet", calls_meet, METH_VARARGS, "$self, own, same, /",
               "Take the neighbours of this rank, to whom blocks of their `own` or the `same` go, "
               "for the C door."),
    HAN_METHOD("clear", calls_clear, METH_NOARGS, "$self, /", "Remove all plans."),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef calls_members[] = {
    {"entries", T_UINT, offsetof(CallsObject, plans.used), READONLY, "The number of entries."},
    {"hits", T_ULONGLONG, offsetof(CallsObject, hits), READONLY,
     "The number of calls that found their plan here."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject CallsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "han._native.Calls",
    .tp_basicsize = sizeof(CallsObject),
    .tp_dealloc = (destructor)calls_dealloc,
    .tp_traverse = (traverseproc)calls_traverse,
    .tp_clear = (inquiry)calls_tp_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc =
        "Calls(engine, reader, request, rank, size, bounds)\n--\n\n"
        "The look-up of plans by the arguments of calls; `request` is the class of requests,\n"
        "`bounds` are those of classes of sizes.",
    .tp_methods = calls_methods,
    .tp_members = calls_members,
    .tp_init = (initproc)calls_init,
    .tp_new = PyType_GenericNew,
};
