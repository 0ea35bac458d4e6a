/* How the run at the head of the queue begins and ends. */
#ifndef HAN_RUNS_H
#define HAN_RUNS_H

#include "engine.h"

/* Begin the run if it has not begun, and choose its plan if none is chosen. Returns whether its
 * instructions may be executed: the plan is chosen, and peers no longer need the shared memory that
 * it writes. */
bool han_ready(han_engine *);

/* The run has finished: tell the peers and the owner of the run. */
void han_finish(han_engine *);

#endif
