/* Stopping an engine while runs are under way. */
#ifndef HAN_STOP_H
#define HAN_STOP_H

#include "engine.h"

/* Fail the engine and all its runs, and cancel their receives. Sets `left` if messages or
 * collectives could not be completed. */
void han_engine_stop(han_engine *);

#endif
