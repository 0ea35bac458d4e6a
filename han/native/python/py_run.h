/* Running plans from Python: the lock of the interpreter, errors, and buffers to keep. */
#ifndef HAN_PY_RUN_H
#define HAN_PY_RUN_H

#include "python/objects.h"

/* Call engine.on_error with an error: 0 to go on waiting, -1 with an exception. */
int han_py_report(EngineObject *, enum han_status);
/* Raise if a user's reduction calls han: 0 or -1. */
int han_py_refuse_inside_op(void);

/* Put a run into the queue. 0 or -1. */
int han_py_enqueue(EngineObject *, han_run *);
/* Run a brief plan for a moment without releasing the lock of the interpreter. */
enum han_status han_py_try(EngineObject *, const han_run *);
/* Wait for a queued run without the lock; raises as engine.on_error says. 0 or -1. */
int han_py_wait(EngineObject *, han_run *);
/* A whole blocking call. The objects `kept` own its buffers. 0 or -1. */
int han_py_run(EngineObject *, PlanObject *, const void *send, void *recv, PyObject *const *kept,
               Py_ssize_t n);

/* Fail the engine and cancel its runs, without the lock. */
void han_py_stop(EngineObject *);

#endif
