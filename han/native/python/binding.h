/* What the files of the Python binding share. */
#ifndef HAN_BINDING_H
#define HAN_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "engine.h"

typedef struct {
    PyObject_HEAD
    han_engine engine;
    han_mpi mpi;
    PyObject *on_error; /* called with (status, detail); raises, or returns to go on waiting */
    PyObject *weakrefs;
    Py_buffer views[HAN_MAX_CHANNELS];
} EngineObject;

typedef struct PlanObject {
    PyObject_HEAD
    han_plan plan;
    struct PlanObject *alternative, *rival; /* owned; or NULL */
    han_instr *code;
    han_handle *comms;
    PyObject *keep; /* scratch, operation and whatever else must live as long */
    Py_buffer scratch, shifts;
} PlanObject;

extern PyTypeObject EngineType, PlanType, RequestType, CallsType;

/* Let Python tell the error: 0 to go on waiting, -1 with an exception set. */
int han_py_report(EngineObject *, enum han_status);
/* In a user's reduction, raise. 0 or -1. */
int han_py_refuse_inside_op(void);
/* Put a run into the queue. 0 or -1. */
int han_py_enqueue(EngineObject *, han_run *);
/* Run a brief plan for a moment without letting Python's lock go. */
enum han_status han_py_try(EngineObject *, const han_run *);
/* Wait for a queued run without the lock; raises as engine.on_error says. 0 or -1. */
int han_py_wait(EngineObject *, han_run *);
/* A whole blocking call. `kept` own its buffers. 0 or -1. */
int han_py_run(EngineObject *, PlanObject *, const void *send, void *recv, PyObject *const *kept,
               Py_ssize_t n);
/* Never let these go. */
void han_py_keep(PyObject *const *kept, Py_ssize_t n);
/* Start a request: None, or NULL with an exception. */
PyObject *han_py_start(PyObject *request);
/* The requests that were dropped while they run, as a list. */
PyObject *han_py_orphans(void);
/* Hold a Program against what it may touch: None, or NULL with a ValueError. */
PyObject *han_py_fence(PyObject *module, PyObject *args, PyObject *kwargs);
/* Add the functions of arenas to the module. 0 or -1. */
int han_py_add_arena(PyObject *module);
/* Add plain copies and reductions to the module. 0 or -1. */
int han_py_add_kernels(PyObject *module);
/* Add the functions that map memory of other processes. 0 or -1. */
int han_py_add_mapping(PyObject *module);
PyObject *han_py_plan(EngineObject *, PyObject *args, PyObject *kwargs);

#endif
