/* The Python type of a board. */
#ifndef HAN_PY_BOARD_H
#define HAN_PY_BOARD_H

#include "python/objects.h"

int han_py_add_board(PyObject *module);

#endif
