/* Reads one side of a call that came through the C door: its elements, or its blocks. False: Python must
 * read the call. */
#ifndef HAN_PY_DOOR_SIDES_H
#define HAN_PY_DOOR_SIDES_H

#include "door.h"
#include "python/py_arguments.h"

/* How one side of a call tells its blocks. */
typedef struct {
    const han_door_side *side;
    const int32_t *ranks; /* of the blocks, negative ones are none; NULL: in rank order */
    int32_t n;
    enum han_door_form form;
    bool large, far; /* of 64 bits: the counts, and the places */
    bool same;       /* each block is the whole buffer */
} han_door_told;

/* What is read of blocks, by their ranks; the types, if each block has its own. */
typedef struct {
    uint64_t *bytes, *places, *elements, *types;
} han_door_sized;

/* Read the elements of a side. */
bool han_door_reads(const han_caller *, const han_door_side *, han_buffer *);
/* The same of a block for each rank; `nbytes` is that of one. */
bool han_door_reads_blocks(const han_caller *, const han_door_side *, han_buffer *,
                           uint64_t *nbytes);
/* Read the blocks of a side, into numbers that are all 0: whether all are such as C runs. Those of one
 * rank must be contiguous, and not packed if there are several. Without places blocks are in order. */
bool han_door_reads_sizes(const han_caller *, han_door_told, han_buffer *, han_door_sized);
/* The type, which was not known, of elements of the last call of this thread that Python must read; 0: there
 * is none, or it was told before. */
han_handle han_door_missed(void);

#endif
