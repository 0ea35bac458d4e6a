/* han._native.Engine. */
#ifndef HAN_PY_ENGINE_H
#define HAN_PY_ENGINE_H

#include "python/objects.h"

extern PyTypeObject EngineType;

/* Load MPI's functions as a tuple from Python says: (path of mpi4py's module, whether handles are
 * pointers, MPI.ANY_SOURCE, tag of notices, MPI.IN_PLACE, handle of MPI.BYTE). 0 or -1. */
int han_py_load_mpi(han_mpi *, PyObject *library);

#endif
