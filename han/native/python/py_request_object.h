/* What a request consists of, and how it is kept in step with MPI's view of it. */
#ifndef HAN_PY_REQUEST_OBJECT_H
#define HAN_PY_REQUEST_OBJECT_H

#include "python/objects.h"
#include "python/py_ready.h"
#include "python/py_token.h"

/* What han adds to mpi4py's request. */
typedef struct {
    han_run run;
    EngineObject *engine;
    PlanObject *plan;
    han_token *token; /* NULL: MPI's handle is MPI_REQUEST_NULL */
    PyObject *sizes;  /* of blocks that differ, as bytes, or NULL */
    PyObject *keep;   /* the user's buffers */
    PyObject *begin;  /* called before a start (packing), or NULL */
    PyObject *end;    /* called after completion (unpacking), or NULL */
    han_ready *home;  /* where it is put when it is complete, or NULL */
    han_ready_node ready;
    bool active, started;
    bool ended;      /* `end` was called for this run */
    bool persistent; /* may be started again; other requests release their buffers when complete */
    bool held;       /* a C program's: nobody owns it, until it is complete */
} request;

/* The class, which is made at run time: it extends mpi4py's by the fields of `request`. */
typedef struct {
    PyTypeObject *type, *base;
    Py_ssize_t fields, handle; /* where both begin in an object */
    size_t handle_size;
    uint64_t null; /* MPI_REQUEST_NULL */
    PyObject *no_arguments;
    han_mpi mpi;
} han_request_class_facts;

extern han_request_class_facts han_request_class;

request *han_request_fields(PyObject *);

static inline bool han_under_way(const request *self) {
    return atomic_load_explicit(&self->run.status, memory_order_acquire) == HAN_BLOCKED;
}

/* Put a request of a C program, which owns no memory, there when it is complete. */
void han_request_return_to(PyObject *, han_ready *home);
/* The run is over: whether the request may be started again. Needs no lock of the interpreter. */
bool han_request_rest(PyObject *);
/* Show MPI a request that was started again; false if it has completed it meanwhile. No lock needed. */
bool han_request_resume(PyObject *);
/* Let MPI know that a run is under way. */
void han_request_arm(PyObject *);
/* Take notice of a completion by MPI. */
void han_request_synchronise(PyObject *);
/* The run is over and `end` was called: MPI need not complete the request. */
void han_request_settle(PyObject *);
/* MPI's handle of a request that was started; MPI_REQUEST_NULL if it has none. */
uint64_t han_request_handle(PyObject *);
/* Keep a request alive until it is complete. */
void han_request_hold(PyObject *);
void han_request_let_go(PyObject *);
/* Call `end`, once a run. 0, or -1 with an exception. */
int han_request_unpack(request *);
/* MPI completes the request: unpack, or return MPI's code for the error. */
int han_request_ended(PyObject *);
/* Release everything that the request owns. */
void han_request_release(PyObject *);
/* Release requests that were dropped and have finished. 0, or -1 with an exception. */
int han_forget_orphans(void);
/* Keep a request alive until its run is over. 0, or -1 with an exception. */
int han_request_adopt(PyObject *);
/* The requests that were dropped while they run, as a list. */
PyObject *han_py_orphans(void);

extern PyMethodDef han_request_methods[];
extern PyGetSetDef han_request_getset[];

#endif
