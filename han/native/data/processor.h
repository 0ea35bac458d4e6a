/* What the processor is, as far as the ways to copy depend on it. */
#ifndef HAN_PROCESSOR_H
#define HAN_PROCESSOR_H

#include <stdbool.h>
#include <stddef.h>

/* Whether it copies strings quickly, without fetching the lines that it writes. */
bool han_copies_strings(void);

/* Whether lines are slow from core to core. */
bool han_on_mesh(void);

/* Bytes of the last level of cache that each of so many ranks on this machine has, by the system; a
 * guess where it does not say. */
size_t han_cache_share(unsigned ranks);

#endif
