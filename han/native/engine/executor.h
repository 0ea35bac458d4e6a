/* The executor: runs the instructions of a plan's streams. */
#ifndef HAN_EXECUTOR_H
#define HAN_EXECUTOR_H

#include "engine.h"

/* One turn for each stream of the run at the head of the queue, which is not empty. The caller must
 * hold the engine's lock. */
enum han_status han_step(han_engine *);

#endif
