/* The methods of requests, and their attributes. */
#ifndef HAN_PY_REQUEST_METHODS_H
#define HAN_PY_REQUEST_METHODS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern PyMethodDef han_request_methods[];
extern PyGetSetDef han_request_getset[];

/* Start a request: None, or NULL with an exception. */
PyObject *han_py_start(PyObject *request);

#endif
