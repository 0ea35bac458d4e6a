/* Recording when tasks run, while tracing is on. */
#ifndef HAN_TRACE_H
#define HAN_TRACE_H

#include "engine.h"

/* The executor calls one before it tries an operation, the other after the operation was done; `last`
 * says that it was the last one of its task. `ticks` is the clock's last value, 0 if it may be old. */
void han_trace_before(han_engine *, uint32_t stream, const han_instr *, uint64_t *ticks);
void han_trace_after(han_engine *, uint32_t stream, const han_instr *, bool last, uint64_t *ticks);

/* Record into `trace` from now on (NULL: tracing is off), in memory of this owner. Returns the owner
 * of the trace before. The caller must hold the engine's lock. */
void *han_trace_into(han_engine *, han_trace *, void *owner);

#endif
