/* Which kind of store is faster at present for large data that a peer reads next. */
#ifndef HAN_STORES_H
#define HAN_STORES_H

#include "engine.h"

#ifndef HAN_WAYS_LEAST
#define HAN_WAYS_LEAST 32768 /* bytes; below, reading the clock costs too much */
#endif

/* Copy into the cells of a channel. */
void han_copy_cells(han_engine *, void *dst, const void *src, size_t n);

/* The kind of stores to use next. */
enum han_way han_next_way(han_ways *);
/* Note that stores of one kind took `ns` for `bytes`, at least HAN_WAYS_LEAST. */
void han_note_stores(han_ways *, enum han_way, uint64_t ns, uint64_t bytes);
/* Whether the usual kind takes much longer than the other one at present. */
bool han_usual_is_slow(const han_ways *);

#endif
