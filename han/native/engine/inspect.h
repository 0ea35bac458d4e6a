/* Questions to an engine from a thread that does not step it. */
#ifndef HAN_INSPECT_H
#define HAN_INSPECT_H

#include "engine.h"
#include "engine/choice.h"

/* What each stream of the run at the head waits for, or which ranks have not yet told their choice;
 * at most HAN_MAX_STREAMS rows, and the signature and size of the run. Returns the number of rows; 0
 * if nothing runs, or another thread keeps stepping the engine. */
uint32_t han_engine_blocked(han_engine *, han_where *rows, uint64_t *signature, uint64_t *nbytes);

/* The channel whose flags the run at the head waits for, or -1. `brief`: it also waits for messages
 * or another channel, or other engines are active. */
int han_engine_awaits(han_engine *, bool *brief);

/* As han_mismatch; false if another thread is stepping the engine. */
bool han_engine_mismatch(han_engine *);

#endif
