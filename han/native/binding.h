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
    PyObject *pending;  /* requests in the queue, kept alive */
    Py_buffer views[HAN_MAX_CHANNELS];
} EngineObject;

typedef struct {
    PyObject_HEAD
    han_plan plan;
    han_instr *code;
    han_handle *comms;
    PyObject *keep; /* scratch, operation and whatever else must live as long */
    Py_buffer scratch;
} PlanObject;

extern PyTypeObject EngineType, PlanType, RequestType, CallsType;

/* Let Python tell the error: 0 to go on waiting, -1 with an exception set. */
int han_py_report(EngineObject *, enum han_status);
/* Wait for a queued run without the GIL; raises as engine.on_error says. 0 or -1. */
int han_py_wait(EngineObject *, han_run *);
/* A whole blocking call. 0 or -1. */
int han_py_run(EngineObject *, PlanObject *, const void *send, void *recv);
/* Start a request: None, or NULL with an exception. */
PyObject *han_py_start(PyObject *request);
PyObject *han_py_plan(EngineObject *, PyObject *args, PyObject *kwargs);

#endif
