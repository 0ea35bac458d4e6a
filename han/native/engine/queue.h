/* The queue of an engine, and the list of active engines of this process.
 *
 * One thread at a time steps an engine. A thread that waits for one engine also steps the active
 * ones of other threads, since a peer may wait for them. */
#ifndef HAN_QUEUE_H
#define HAN_QUEUE_H

#include "engine.h"

/* Append a run to the queue; it starts when the runs before it have finished. */
void han_enqueue(han_engine *, han_run *);
/* The same, and step it once if it is brief and at the head; returns false, without waiting, if another
 * thread is stepping the engine. */
bool han_try_begin(han_engine *, han_run *);

/* Step the run at the head once, unless another thread is stepping the engine. */
enum han_status han_engine_step(han_engine *);
/* Step `run`, if it is at the head, for at most `rounds` rounds, without waiting or yielding. */
enum han_status han_try(han_engine *, const han_run *, int rounds);

/* Add an engine to the list of active engines; remove it, when no thread steps it any more. */
void han_activate(han_engine *);
void han_deactivate(han_engine *);
/* Remove it if it has no runs. */
void han_drop_idle(han_engine *);
/* Whether other engines than this one (or NULL) are active. */
bool han_others_active(const han_engine *);
/* Step every active engine but this one (or NULL) once. */
void han_progress_others(const han_engine *);

/* Step every active engine once that no other thread has stepped since the last call. HAN_OK: there
 * was none; HAN_MOVED: an operation was done; HAN_BLOCKED: none could be done. `how`: HAN_OVER_WITH_MPI allows steps that call MPI,
 * HAN_OVER_AT_ONCE takes engines over that were stepped meanwhile. */
enum { HAN_OVER_WITH_MPI = 1, HAN_OVER_AT_ONCE = 2 };
enum han_status han_take_over(unsigned how);

/* In the child of a fork: another thread may have held locks, and will not give them back. The
 * child's engines are never stopped. */
void han_after_fork(void);
bool han_forked(void);

/* Mark the engine as failed; returns the status. */
enum han_status han_fail(han_engine *, enum han_status);

/* Whether this thread is inside a step, or inside a call of MPI that the engine made: a user's
 * reduction runs there, and must not wait for an engine. */
bool han_inside_op(void);
/* Set this state of the thread; returns the value before. */
bool han_set_inside_op(bool);

#endif
