/* Slabs: extents that are divided into blocks of one size, for allocations below a page. */
#ifndef HAN_SLABS_H
#define HAN_SLABS_H

#include "memory/extents.h"

enum {
    HAN_BLOCK_LEAST = 64, /* bytes of the smallest block: one cache line, as vector loads like it */
    HAN_BLOCK_CLASSES = 6,
    HAN_BLOCK_MOST = HAN_BLOCK_LEAST << (HAN_BLOCK_CLASSES - 1), /* larger ones take pages */
};

/* By class: the slabs with free blocks. */
typedef struct {
    han_extent *with_room[HAN_BLOCK_CLASSES];
} han_slabs;

/* A block of at least so many bytes, at most HAN_BLOCK_MOST. NULL: errno says why. */
void *han_slabs_take(han_slabs *, han_extents *, size_t bytes);
void han_slabs_give(han_slabs *, han_extents *, han_extent *slab, const uint8_t *block);

#endif
