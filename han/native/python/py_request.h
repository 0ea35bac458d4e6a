/* han._native.Request: what nonblocking and persistent calls return. */
#ifndef HAN_PY_REQUEST_H
#define HAN_PY_REQUEST_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyTypeObject RequestType;

/* Start a request: None, or NULL with an exception. */
PyObject *han_py_start(PyObject *request);
/* The requests that were dropped while they run, as a list. */
PyObject *han_py_orphans(void);

#endif
