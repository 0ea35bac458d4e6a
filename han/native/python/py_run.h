/* Running plans from Python: the interpreter's lock, errors, and objects that own buffers. */
#ifndef HAN_PY_RUN_H
#define HAN_PY_RUN_H

#include "python/objects.h"

/* Call engine.on_error with an error: 0 to go on waiting, -1 with an exception. */
int han_py_report(EngineObject *, enum han_status);

/* The same inside a callback of MPI, which cannot raise: engine.on_error keeps the error for a later
 * report. Returns whether there is one; no exception is set. */
bool han_py_put_off(EngineObject *, enum han_status);
/* Raise if this is called inside a user's reduction. 0 or -1. */
int han_py_refuse_inside_op(void);

/* Put a run into the queue. 0 or -1. */
int han_py_enqueue(EngineObject *, han_run *);
/* Run a brief plan for a moment without releasing the lock of the interpreter. */
enum han_status han_py_try(EngineObject *, const han_run *);
/* Wait for a queued run without the lock; raises what engine.on_error raises. 0 or -1. */
int han_py_wait(EngineObject *, han_run *);
/* A whole blocking call. The objects `kept`, or NULL, own its buffers. 0 or -1. */
int han_py_run(EngineObject *, PlanObject *, const void *send, void *recv, uint64_t nbytes,
               const uint64_t *sizes, PyObject *const *kept, Py_ssize_t n);

/* The same in a thread that may hold the lock or not; it is taken where Python is asked to report. Returns
 * false with an exception, and the lock in `held`. Handlers of signals run later, as in MPI's calls. */
bool han_py_run_unlocked(EngineObject *, PlanObject *, const void *send, void *recv,
                         uint64_t nbytes, const uint64_t *sizes, PyGILState_STATE *held);

/* Whether handlers of signals run later in this thread; returns what it was before. */
bool han_py_deaf(void);
bool han_py_set_deaf(bool);

/* The sizes of blocks in a bytes object, or NULL for a plan of equal blocks. 0, or -1 with an
 * exception if they are not those of the plan's blocks. */
int han_py_sizes(const han_plan *, PyObject *bytes, const uint64_t **out);

/* Let the interpreter's lock go if this thread holds it, as a Python program's extension may; else NULL. */
PyThreadState *han_py_without_lock(void);

/* Fail the engine and cancel its runs, without the lock. */
void han_py_stop(EngineObject *);

#endif
