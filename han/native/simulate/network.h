/* Messages in virtual time, by the max-rate model: latency, bandwidth of a pair, adapters. */
#ifndef HAN_SIMULATE_NETWORK_H
#define HAN_SIMULATE_NETWORK_H

#include "simulate/world.h"

/* Start a send, or post a receive, of message `number`. The message's place; -1: no memory. */
int64_t sim_send(sim_state *s, double now, int32_t src, int32_t dst, int64_t number,
                 int64_t nbytes);
int64_t sim_receive(sim_state *s, double now, int32_t src, int32_t dst, int64_t number);

/* Let its adapter take the next message that is due by `now`. Its place; -1: there is none. */
int64_t sim_deliver(sim_state *s, double now);

/* One side has completed the message. */
void sim_leave(sim_state *s, int64_t place);

#endif
