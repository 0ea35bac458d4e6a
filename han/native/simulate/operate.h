/* Operations in virtual time: one row for each code of a program. */
#ifndef HAN_SIMULATE_OPERATE_H
#define HAN_SIMULATE_OPERATE_H

#include "simulate/world.h"

/* Carry out an operation of a rank. The time when it is done, or minus the time to retry it. */
double sim_operate(sim_state *s, int32_t rank, const sim_op *op, double now);

/* Let messages that are due by `now` pass the adapters, and wake their receivers. */
void sim_deliver_all(sim_state *s, double now);

#endif
