/* Sleeping in the kernel while the run at the head of the queue waits for a flag. */
#ifndef HAN_SLEEP_H
#define HAN_SLEEP_H

#include "engine.h"

/* Step the engine once. If no operation could be done, sleep until a peer posts a flag in the
 * channel that the run waits for, or until a time limit, at most `most_ns`. `slept` stays false if
 * no bell rings for what the run waits for. Returns HAN_BLOCKED or the status of the step. */
enum han_status han_sleep(han_engine *, uint32_t most_ns, bool *slept);

#endif
