/* The class of requests, which nonblocking and persistent calls return. It extends mpi4py's. */
#ifndef HAN_PY_REQUEST_H
#define HAN_PY_REQUEST_H

#include "python/objects.h"

/* The function han._native.request_class. */
PyObject *han_py_request_class(PyObject *module, PyObject *args);

/* Make a request of a nonblocking call; takes over the reference `kept`. `sizes` are those of
 * blocks that differ, as bytes; or NULL. */
PyObject *han_py_request(PyTypeObject *, EngineObject *, PlanObject *, const void *send, void *recv,
                         uint64_t nbytes, PyObject *sizes, PyObject *kept);

#endif
