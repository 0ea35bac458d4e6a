/* What the C door (door/door.h) asks for. A repeated call is read and run here without Python; all
 * others go to functions of han/preloaded.py. */
#define _GNU_SOURCE
#include "python/module.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"
#include "python/py_calls.h"
#include "python/py_copies.h"
#include "python/py_door_read.h"
#include "python/py_door_sides.h"
#include "python/py_enter.h"
#include "python/py_request_object.h"
#include "python/py_run.h"
#include "python/py_types.h"

enum { MOST_OPS = 32 }; /* whose calls need no Python */

/* What han/preloaded.py gives. */
static struct {
    PyObject *begin;  /* (comm) -> whether han can serve it */
    PyObject *first;  /* (what a han_door_call says) -> (code, look-up or None, request or None) */
    PyObject *failed; /* (comm, error) -> code */
    PyObject *free;   /* (comm) -> code */
    PyObject *forget; /* (op) */
    PyObject *end;    /* () */
    PyObject *rest;   /* (comm) -> the handle of a request that is inactive */
    PyObject *ops;    /* the objects of operations, by their handles */
    han_handle op[MOST_OPS]; /* some of these; 0: none */
    PyObject *op_object[MOST_OPS];
    int wide;           /* handles are pointers */
    int other;          /* MPI's code of an error that Python could not tell */
    han_handle no_type; /* MPI_DATATYPE_NULL, which programs may pass with no elements */
} door;

/* ---- a repeated call ------------------------------------------------------------------------ */

/* Other threads may learn and forget operations meanwhile, under Python's lock. */
static PyObject *op_of(han_handle op) {
    for (int k = 0; k < MOST_OPS; k++)
        if (__atomic_load_n(&door.op[k], __ATOMIC_ACQUIRE) == op) return door.op_object[k];
    return NULL;
}

/* ---- answers of Python ---------------------------------------------------------------------- */

/* A handle as mpi4py shows it: an int without its sign, or a pointer. */
static unsigned long long shown(han_handle handle) {
    return door.wide ? (unsigned long long)handle : (unsigned)handle;
}
static han_handle handle_of(unsigned long long as_shown) {
    return door.wide ? (han_handle)as_shown : (int)as_shown;
}

/* Learn the object of an operation that Python has used; 0 is none. */
static void learn_op(han_handle op) {
    int k = 0;
    if (!op || op_of(op)) return;
    while (k < MOST_OPS && door.op[k]) k++;
    PyObject *key = PyLong_FromUnsignedLongLong(shown(op));
    PyObject *object = key && k < MOST_OPS ? PyDict_GetItemWithError(door.ops, key) : NULL;
    Py_XDECREF(key);
    if (!object) return;
    door.op_object[k] = Py_NewRef(object);
    __atomic_store_n(&door.op[k], op, __ATOMIC_RELEASE);
}

static void unlearn_op(han_handle op) {
    for (int k = 0; k < MOST_OPS; k++)
        if (door.op[k] == op) {
            __atomic_store_n(&door.op[k], 0, __ATOMIC_RELEASE);
            Py_CLEAR(door.op_object[k]);
        }
}

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

/* Run a plan: whether the run is over, else with the code of its error. */
static bool completes(void *calls, PlanObject *plan, const han_door_call *d, const han_call *c,
                      int *code) {
    PyGILState_STATE held;
    *code = 0;
    if (han_py_run_unlocked(han_py_calls_engine(calls), plan, c->send.data, c->recv.data,
                            c->key.nbytes, c->counts, &held))
        return true;
    *code = code_of_error(d->comm);
    PyGILState_Release(held);
    return false;
}

/* Run a call that was read: whether its plan is known. */
static bool run(void *calls, const han_door_call *d, const han_call *c, int *code) {
    PlanObject *plan = han_py_calls_known(calls, c);
    if (plan) (void)completes(calls, plan, d, c, code);
    return plan;
}

/* The same of a call that receives in a copy. After an error peers may still write to the copy. */
static bool run_on_copy(void *calls, const han_door_call *d, const han_call *c, int *code) {
    const han_caller *caller = han_py_calls_caller(calls);
    PlanObject *plan = han_py_calls_known(calls, c);
    void *memory = plan ? malloc(han_copy_bytes(caller, c)) : NULL;
    han_call copy;
    if (!memory) return false;
    if (han_copy_lay_out(caller, c, memory, &copy)) {
        free(memory);
        return false;
    }
    if (!completes(calls, plan, d, &copy, code)) return true;
    *code = han_copy_deliver(caller, c, &copy);
    free(memory);
    return true;
}

/* ---- requests ------------------------------------------------------------------------------- */

/* A persistent request, and the communicator whose handler of errors hears of it. */
typedef struct {
    PyObject *request;
    han_handle comm;
} persistent;

/* Give the door a request that was started; 0, or -1 with an exception. */
static int give_started(PyObject *request, han_door_call *d) {
    uint64_t handle = han_request_handle(request);
    if (handle == han_request_class.null)
        return HAN_RAISE(PyExc_SystemError, "the MPI library makes no request");
    han_request_hold(request);
    d->made.handle = handle_of(handle);
    return 0;
}

/* Give the door a persistent request. */
static int give_persistent(PyObject *request, han_door_call *d) {
    PyObject *handle = PyObject_CallFunction(door.rest, "K", shown(d->comm));
    persistent *made = handle ? PyMem_Malloc(sizeof *made) : NULL;
    if (handle && !made) PyErr_NoMemory();
    if (made) {
        *made = (persistent){Py_NewRef(request), d->comm};
        d->made.persistent = made;
        d->made.handle = handle_of(PyLong_AsUnsignedLongLong(handle));
    }
    Py_XDECREF(handle);
    return PyErr_Occurred() ? -1 : 0;
}

static int give(PyObject *request, han_door_call *d) {
    return (d->when == HAN_DOOR_LATER ? give_started : give_persistent)(request, d);
}

/* Start a request that is ready for a call that was read, without Python: whether there is one. */
static bool started_again(void *calls, han_door_call *d, const han_call *c, int *code) {
    const bool may_be = d->when == HAN_DOOR_LATER && c->use == HAN_DIRECT;
    PyObject *made = may_be ? han_py_calls_ready(calls, c) : NULL;
    if (!made) return false;
    d->made.handle = handle_of(han_request_handle(made));
    *code = 0;
    return true;
}

/* Make a request, with numbers of its own if it delivers from a copy; else as han_py_calls_request. */
static PyObject *make_request(void *calls, const han_door_call *d, const han_call *c) {
    const size_t n = HAN_OWN_ALL * (size_t)han_py_calls_caller(calls)->size;
    const bool keeps = c->use != HAN_DIRECT && c->counts;
    han_call taken = *c; /* by the request */
    if (keeps) {
        taken.counts = PyMem_Malloc(n * sizeof *c->counts);
        if (!taken.counts) return PyErr_NoMemory();
        memcpy(taken.counts, c->counts, n * sizeof *c->counts);
    }
    PyObject *made = han_py_calls_request(calls, &taken, d->when == HAN_DOOR_STARTED);
    if (keeps) PyMem_Free(taken.counts);
    return made;
}

/* Make the request of a call that was read: whether its plan is known. */
static bool requested(void *calls, han_door_call *d, const han_call *c, int *code) {
    if (started_again(calls, d, c, code)) return true;
    if (han_copy_needs_types(han_py_calls_caller(calls), c)) return false;
    entered python = enter();
    PyObject *made;
    do made = make_request(calls, d, c);
    while (!made && was_interrupted(&python));
    bool known = made != Py_False;
    *code = 0;
    if (!made && d->when == HAN_DOOR_STARTED && PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear(); /* on all ranks alike: there is no room for one more */
        *code = HAN_DOOR_LEFT;
    } else if (!made || (known && give(made, d))) {
        *code = code_of_error(d->comm);
    }
    Py_XDECREF(made);
    leave(python);
    return known;
}

static int start(void *given, han_handle *active) {
    const persistent *p = given;
    const bool again = han_request_start_again(p->request);
    *active = handle_of(han_request_handle(p->request));
    if (again && han_request_handle(p->request) != han_request_class.null) return 0;
    entered python = enter();
    PyObject *answer = again ? Py_NewRef(Py_None) : NULL;
    while (!answer && !(answer = han_py_start(p->request)) && was_interrupted(&python)) continue;
    if (answer && han_request_handle(p->request) == han_request_class.null) {
        Py_CLEAR(answer);
        PyErr_SetString(PyExc_SystemError, "the MPI library makes no request");
    }
    int code = answer ? 0 : code_of_error(p->comm);
    *active = handle_of(han_request_handle(p->request));
    Py_XDECREF(answer);
    leave(python);
    return code;
}

/* MPI tells the errors of a run that has failed. */
static int finish(han_handle handle, bool block) {
    PyObject *request = han_token_owner(shown(handle));
    const int at_once = request ? han_request_finish_at_once(request, block) : HAN_DOOR_LEFT;
    if (!request || at_once >= 0) return at_once;
    entered python = enter();
    request = Py_XNewRef(han_token_owner(shown(handle)));
    const bool before = han_py_set_deaf(true);
    int done = -1;
    do
        if (request) done = han_request_finish(request, block);
    while (done < 0 && was_interrupted(&python));
    (void)han_py_set_deaf(before);
    if (done < 0) PyErr_Clear();
    Py_XDECREF(request);
    leave(python);
    return done < 0 ? HAN_DOOR_LEFT : done;
}

static void drop(void *given) {
    persistent *p = given;
    entered python = enter();
    PyObject *answer = PyObject_CallMethod(p->request, "Free", NULL);
    if (!answer) PyErr_Print();
    Py_XDECREF(answer);
    Py_DECREF(p->request);
    PyMem_Free(p);
    leave(python);
}

/* ---- calls ---------------------------------------------------------------------------------- */

enum { FEW = 64 }; /* ranks whose sizes are on the stack */

static bool again(void *calls, han_door_call *d, int *code) {
    const han_caller *caller = han_py_calls_caller(calls);
    EngineObject *engine = han_py_calls_engine(calls);
    uint64_t few[HAN_OWN_ALL * FEW], *sizes = few;
    const size_t n = d->form || d->neighbours ? HAN_OWN_ALL * (size_t)caller->size : 0;
    const han_edges *edges =
        d->neighbours ? han_py_calls_edges(calls, d->collective == HAN_C_ALLGATHER) : NULL;
    if (!engine) return false;
    if (n > HAN_OWN_ALL * FEW && !(sizes = malloc(n * sizeof *sizes))) return false;
    if (n) memset(sizes, 0, n * sizeof *sizes);
    han_call c;
    han_call_clear(&c, d->collective);
    if (d->op) c.key.op = op_of(d->op);
    bool known = han_door_read(caller, d, engine->mpi.in_place, sizes, edges, &c) &&
                 (d->when               ? requested(calls, d, &c, code)
                  : c.use == HAN_DIRECT ? run(calls, d, &c, code)
                                        : run_on_copy(calls, d, &c, code));
    if (sizes != few) free(sizes);
    return known;
}

/* Learn the types that a call was left for, one of each side, and serve it: whether it is known now. */
static bool learnt(void *calls, han_door_call *d, int *code) {
    bool known = false;
    for (int side = 0; side < 2 && calls && !known; side++) {
        const han_handle type = han_door_missed();
        if (!type || type == door.no_type) break;
        entered python = enter();
        han_type_learn(&han_py_calls_caller(calls)->reader->mpi, type);
        leave(python);
        known = again(calls, d, code);
    }
    (void)han_door_missed();
    return known;
}

static int first(han_door_call *d, void **calls) {
    int code = door.other;
    if (learnt(*calls, d, &code)) return code;
    entered python = enter();
    PyObject *found = NULL, *made = NULL;
#define SIDE(S)                                                                               \
    (unsigned long long)(uintptr_t)(S).data, (long long)(S).n, shown((S).type),               \
        (unsigned long long)(uintptr_t)(S).counts, (unsigned long long)(uintptr_t)(S).places, \
        (unsigned long long)(uintptr_t)(S).types
    const bool before = han_py_set_deaf(true);
    PyObject *answer =
        PyObject_CallFunction(door.first, "i(KLKKKK)(KLKKKK)KKiiiii", d->collective, SIDE(d->send),
                              SIDE(d->recv), shown(d->op), shown(d->comm), d->root, (int)d->form,
                              (int)d->when, (int)d->large, (int)d->neighbours);
    (void)han_py_set_deaf(before);
    if (!answer || !PyArg_ParseTuple(answer, "iOO", &code, &found, &made))
        PyErr_Print();
    else if (*calls != found) /* the communicator's State owns it as long as the door uses it */
        *calls = found == Py_None ? NULL : found;
    learn_op(d->op);
    if (made && made != Py_None && give(made, d)) code = code_of_error(d->comm);
    Py_XDECREF(answer);
    leave(python);
    return code;
}

/* Call a function of Python with a handle, or without one. */
static int call(PyObject *function, const char *format, han_handle handle) {
    entered python = enter();
    int code = code_in(PyObject_CallFunction(function, format, shown(handle)));
    leave(python);
    return code;
}

static int release(han_handle comm) { return call(door.free, "K", comm); }
static void forget(han_handle op) {
    entered python = enter();
    unlearn_op(op);
    (void)call(door.forget, "K", op);
    leave(python);
}
static void end(void) { (void)call(door.end, "", 0); }

static bool begin(han_handle comm) { return call(door.begin, "K", comm) == 1; }

static const han_door_api api = {HAN_DOOR_VERSION,  begin, again,   first,  start, finish,
                                 han_tokens_in_use, drop,  release, forget, end};

/* ---- open_door ------------------------------------------------------------------------------ */

/* open_door(begin, first, failed, free, forget, end, rest, operations, wide, code, no_type): whether there is a
 * door. */
static PyObject *open_door(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *f[7], *ops;
    unsigned long long no_type;
    han_door_open_fn *open = (han_door_open_fn *)dlsym(RTLD_DEFAULT, HAN_DOOR_OPEN);
    if (!PyArg_ParseTuple(args, "OOOOOOOO!piK", &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6],
                          &PyDict_Type, &ops, &door.wide, &door.other, &no_type))
        return NULL;
    if (!open || door.first) return PyBool_FromLong(open != NULL);
    door.ops = Py_NewRef(ops);
    door.no_type = handle_of(no_type);
    for (int k = 0; k < 7; k++) Py_INCREF(f[k]);
    door.begin = f[0], door.first = f[1], door.failed = f[2], door.free = f[3];
    door.forget = f[4], door.end = f[5], door.rest = f[6];
    open(&api);
    Py_RETURN_TRUE;
}

PyMethodDef han_door_functions[] = {
    HAN_METHOD("open_door", open_door, METH_VARARGS,
               "$module, begin, first, failed, free, forget, end, rest, operations, wide, code, "
               "no_type, /",
               "Serve the preloaded library; whether there is one."),
    {NULL, NULL, 0, NULL},
};
