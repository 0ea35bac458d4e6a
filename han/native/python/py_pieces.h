/* What is done with each piece of a message, told once for all pieces. */
#ifndef HAN_PY_PIECES_H
#define HAN_PY_PIECES_H

#include "python/py_emit.h"

/* A function of the module: operations of each piece of tasks, in several streams. */
PyObject *han_each_piece(PyObject *module, PyObject *args);

#endif
