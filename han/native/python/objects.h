/* The Python objects that several files use: an engine, a plan, and requests. */
#ifndef HAN_OBJECTS_H
#define HAN_OBJECTS_H

#include "python/module.h"

#include "engine.h"

typedef struct {
    PyObject_HEAD
    han_engine engine;
    han_mpi mpi;
    PyObject *on_error; /* takes (status, detail, later); raises, or returns to go on waiting */
    PyObject *weakrefs;
    Py_buffer views[HAN_MAX_CHANNELS];
} EngineObject;

typedef struct PlanObject {
    PyObject_HEAD
    han_plan plan;
    struct PlanObject *alternative, *rival; /* owned; or NULL */
    PyObject *keep; /* scratch, operation and other objects that the plan needs */
    Py_buffer scratch, shifts;
} PlanObject;

/* An object, or None in the place of NULL; borrowed. */
static inline PyObject *han_py_or_none(void *o) { return o ? (PyObject *)o : Py_None; }

/* The same the other way round: a new reference, or NULL in the place of None. */
static inline PyObject *han_py_given(PyObject *o) { return o == Py_None ? NULL : Py_NewRef(o); }

/* Engine.plan: make a Plan from a program's records. */
PyObject *han_py_plan(EngineObject *, PyObject *args, PyObject *kwargs);
/* Load MPI's functions as a tuple from Python says: (path of mpi4py's module, whether handles are
 * pointers, MPI.ANY_SOURCE, tag of notices, MPI.IN_PLACE, handle of MPI.BYTE). 0 or -1. */
int han_py_load_mpi(han_mpi *, PyObject *library);
/* A view of memory from malloc, which it frees at the end, also on failure; NULL with an error. */
PyObject *han_view_of(void *data, size_t nbytes);

/* The function han._native.request_class. */
PyObject *han_py_request_class(PyObject *module, PyObject *args);
/* Make a request of a nonblocking call; takes over the reference `kept`. `sizes` are those of
 * blocks that differ, as bytes; or NULL. */
PyObject *han_py_request(PyTypeObject *, EngineObject *, PlanObject *, const void *send, void *recv,
                         uint64_t nbytes, PyObject *sizes, PyObject *kept);
/* Start a request: None, or NULL with an exception. */
PyObject *han_py_start(PyObject *request);
/* Start a request that was complete, without the lock of the interpreter; false if that is needed. */
bool han_request_start_again(PyObject *request);
/* Wait a little for a request (`block`), or make progress, without the lock of the interpreter: 1 if it is
 * complete, 0 if it is not, or -1: the lock is needed. */
int han_request_finish_at_once(PyObject *request, bool block);
/* Wait until a request is complete (`block`), or make progress: 1, or 0 if it is not complete, or -1,
 * maybe with an exception: then MPI must complete it. */
int han_request_finish(PyObject *request, bool block);

#endif
