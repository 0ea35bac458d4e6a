/* The time of ranks: when they go on, what they share with others, and the spans of their tasks. */
#ifndef HAN_SIMULATE_RANKS_H
#define HAN_SIMULATE_RANKS_H

#include "simulate/world.h"

/* Let a rank continue at a time, unless it does so earlier; not before its work is done. */
void sim_at(sim_state *s, double time, int32_t rank);

/* Wake a waiting rank, later if its node is oversubscribed. Nothing if the time is NEVER. */
void sim_wake(sim_state *s, double time, int32_t rank);

/* Occupy a core for some work, or a core and memory to move bytes; the time that it takes. */
double sim_compute(sim_state *s, int32_t rank, double seconds);
double sim_move(sim_state *s, int32_t rank, int64_t nbytes, double rate, bool memory);
void sim_release(sim_state *s, int32_t rank);

/* Begin the rank's run once its memory is free. Whether it has begun. */
bool sim_begin(sim_state *s, int32_t rank, double now);
void sim_finish(sim_state *s, int32_t rank, double now);
void sim_next_run(sim_state *s, int32_t rank);

/* A stream has come to a task, has left its task, or has done an operation that began at `now`. */
void sim_enter_task(sim_state *s, int32_t rank, uint32_t task, double now);
void sim_leave_task(sim_state *s, int32_t rank, double now);

#endif
