/* The Python objects that several files use: an engine, and a plan. */
#ifndef HAN_OBJECTS_H
#define HAN_OBJECTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "engine.h"

typedef struct {
    PyObject_HEAD
    han_engine engine;
    han_mpi mpi;
    PyObject
        *on_error; /* called with (status, detail, later); raises, or returns to go on waiting */
    PyObject *weakrefs;
    Py_buffer views[HAN_MAX_CHANNELS];
} EngineObject;

typedef struct PlanObject {
    PyObject_HEAD
    han_plan plan;
    struct PlanObject *alternative, *rival; /* owned; or NULL */
    han_instr *code;
    han_term *terms;
    han_stride *strides;
    han_handle *comms;
    PyObject *keep; /* scratch, operation and other objects that the plan needs */
    Py_buffer scratch, shifts;
} PlanObject;

#endif
