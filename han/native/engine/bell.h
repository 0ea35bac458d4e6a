/* The bell of a channel: ranks sleep in the kernel until a peer rings it.
 *
 * A bell is a number to sleep on and a count of sleepers. A sleeper first counts itself, then looks
 * at the flags once more, then sleeps. A rank that posts a flag then looks at the count, and rings
 * if it is not 0. Both put a fence between their two steps, and one of the fences comes first:
 * either the sleeper sees the flag, or the poster sees the sleeper. Posters only read the count, so
 * its line stays shared between their caches. */
#ifndef HAN_BELL_H
#define HAN_BELL_H

#include "channel.h"

/* Wake the sleepers of a channel, after a flag was posted there. */
void han_ring(const han_channel *);

/* Count this rank as a sleeper, and return the number to sleep on. The caller must look at the
 * flags before it sleeps. */
uint32_t han_bell_enter(const han_channel *);
/* Sleep until the bell rings, unless it has rung since han_bell_enter, for at most `ns`. */
void han_bell_sleep(const han_channel *, uint32_t number, uint32_t ns);
/* This rank is no sleeper any more. */
void han_bell_leave(const han_channel *);

#endif
