/* The look-up of calls, for the C door. */
#ifndef HAN_PY_CALLS_H
#define HAN_PY_CALLS_H

#include "python/py_arguments.h"
#include "python/objects.h"
#include "python/py_own_blocks.h"

/* Who makes a call: rank and size, and the reader. */
const han_caller *han_py_calls_caller(PyObject *calls);
EngineObject *han_py_calls_engine(PyObject *calls);
/* The neighbours of this rank, of which each gets the `same` or a block of its own; NULL: not known. */
const han_edges *han_py_calls_edges(PyObject *calls, bool same);
/* The plan of a call, borrowed, or NULL if Python must make one. Without the interpreter's lock. */
PlanObject *han_py_calls_known(PyObject *calls, const han_call *);
/* Start a request that is ready for a call, without the interpreter's lock: the request, borrowed, or NULL
 * if there is none. */
PyObject *han_py_calls_ready(PyObject *calls, const han_call *);
/* Start a request, or make a persistent one; False if Python must, NULL with an exception. */
PyObject *han_py_calls_request(PyObject *calls, han_call *, bool persistent);

#endif
