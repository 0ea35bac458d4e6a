/* Recording when tasks run, while tracing is on. */
#ifndef HAN_TRACE_H
#define HAN_TRACE_H

#include "engine.h"

/* The executor calls han_trace_before before it tries an operation, and han_trace_after when the
 * operation is done. `last`: it was the last operation of its task. `ticks`: the last value of
 * the clock; 0: it may be outdated. */
void han_trace_before(han_engine *, uint32_t stream, const han_instr *, uint64_t *ticks);
void han_trace_after(han_engine *, uint32_t stream, const han_instr *, bool last, uint64_t *ticks);

/* Record into `trace` from now on (NULL: stop), whose memory `owner` owns. Returns the owner of
 * the trace used before. */
void *han_trace_into(han_engine *, han_trace *, void *owner);

#endif
