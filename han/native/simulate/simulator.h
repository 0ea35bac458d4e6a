/* Virtual time: runs the programs of all ranks. A rank is one processor that goes through its streams
 * as engine/executor.c does: round robin, a few data operations a turn, and the next stream when one
 * has to wait. Flags and messages carry the time at which a peer can see them, so ranks need not
 * advance in step. Only data operations and messages are executed in the order of time, because they
 * share memory, cores and adapters. */
#ifndef HAN_SIMULATE_SIMULATOR_H
#define HAN_SIMULATE_SIMULATOR_H

#include "simulate/world.h"

/* Prepare a simulation; false without memory. In both cases sim_close frees it. */
bool sim_open_state(sim_state *s, const sim_world *world);
void sim_close(sim_state *s);

/* Go on until a rank has finished a run, or `most` steps are done. Whether there is more to do;
 * `finished` says whether a rank has finished a run. */
bool sim_go(sim_state *s, int64_t most, bool *finished);

#endif
