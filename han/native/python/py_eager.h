/* Eager blocks: small objects of ranks, each behind a head that tells its size and its call. */
#ifndef HAN_PY_EAGER_H
#define HAN_PY_EAGER_H

#include "python/module.h"

#include <stdint.h>

enum { HAN_EAGER_BLOCK = 256 }; /* bytes */

/* The head of a block. A size that is negative is inverted: no object follows. */
typedef struct {
    int64_t nbytes;
    int32_t call, root;
} han_eager_head;

/* What follows a head without an object in a call that fills a block for each rank. */
typedef struct {
    int64_t most, total; /* bytes of the largest of the rank's objects, and of all */
} han_eager_spread;

enum { HAN_EAGER_ROOM = HAN_EAGER_BLOCK - (int)sizeof(han_eager_head) };

#endif
