/* Arrays that grow, and heaps of events. A failed allocation sets `failed`, and nothing is added. */
#ifndef HAN_SIMULATE_GROWING_H
#define HAN_SIMULATE_GROWING_H

#include "simulate/world.h"

/* Make room for one more item of `each` bytes behind `length` ones. */
bool sim_grow(sim_state *s, void **items, size_t *room, size_t length, size_t each);
void sim_append(sim_state *s, sim_list *list, int32_t item);
void sim_push(sim_state *s, sim_heap *heap, sim_event event);
sim_event sim_pop(sim_heap *heap); /* the earliest; of equal ones that of the lowest order */

#endif
