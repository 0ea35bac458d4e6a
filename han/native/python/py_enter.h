/* Python's lock for a call that comes from C. */
#ifndef HAN_PY_ENTER_H
#define HAN_PY_ENTER_H

#include "python/module.h"

#include <stdbool.h>

/* Python's lock, and the exception that is set while a Python program's extension calls MPI. */
typedef struct {
    PyGILState_STATE lock;
    PyObject *type, *value, *trace;
    bool interrupted;
} entered;

static inline entered enter(void) {
    entered e = {.lock = PyGILState_Ensure()};
    PyErr_Fetch(&e.type, &e.value, &e.trace);
    return e;
}

static inline void leave(entered e) {
    PyErr_Restore(e.type, e.value, e.trace);
    if (e.interrupted) PyErr_SetInterrupt();
    PyGILState_Release(e.lock);
}

/* Whether Python was interrupted by a signal (Ctrl-C), of which the program hears after the call. */
static inline bool was_interrupted(entered *e) {
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) return false;
    PyErr_Clear();
    return e->interrupted = true;
}

#endif
