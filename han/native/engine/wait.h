/* Waiting: an engine steps its own run, MPI and other engines, and spins, yields or sleeps meanwhile.
 * It also looks for signals, time limits, notices of peers and peers that died. */
#ifndef HAN_WAIT_H
#define HAN_WAIT_H

#include "engine.h"

/* Step the queue until `run` has finished or an error occurs; with `block` false also return as soon
 * as nothing moves. */
enum han_status han_progress(han_engine *, han_run *, bool block);

/* Check the time limit, mismatches and dead peers, for a thread that has waited elsewhere for so many
 * seconds. */
enum han_status han_look(han_engine *, double waited);

#endif
