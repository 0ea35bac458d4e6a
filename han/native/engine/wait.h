/* Waiting: a thread steps its engine, MPI and other engines. Meanwhile it spins, yields or
 * sleeps. It also checks for signals, the time limit, notices of peers and peers that died. */
#ifndef HAN_WAIT_H
#define HAN_WAIT_H

#include "engine.h"

#ifndef SLEEP_YIELDS
#define SLEEP_YIELDS 64 /* before the thread sleeps in the kernel: waking up takes as long */
#endif

/* The number of yields before the next sleep in the kernel, after a wait with `patience` yields
 * took so many nanoseconds, of which the thread slept `slept`. */
uint32_t han_next_patience(uint32_t patience, uint64_t waited, uint64_t slept);

/* Step the queue until `run` has finished or an error occurs. With `block` false, return as soon
 * as no operation can be done. */
enum han_status han_progress(han_engine *, han_run *, bool block);

/* Check the time limit, mismatches and dead peers, for a thread that has waited `waited` seconds
 * elsewhere. */
enum han_status han_check_peers(han_engine *, double waited);

#endif
