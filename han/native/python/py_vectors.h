/* Reads buffers with a block for each rank, given by counts, as han/message/uneven.py does. Counts and
 * displacements are lists, tuples, or arrays of integers, NumPy's or those of the module array. */
#ifndef HAN_PY_VECTORS_H
#define HAN_PY_VECTORS_H

#include "python/py_reader.h"

/* Blocks of all ranks, in elements. */
typedef struct {
    uint64_t *counts, *places; /* of each block; the caller owns the memory of these */
    uint64_t *elements;        /* of each block, where counts become bytes */
    const int32_t *ranks;    /* NULL, or whose each block is: that of a negative one is left out */
    uint64_t total, largest; /* in all; in the largest block */
    uint64_t reach;          /* where the last block ends */
    int32_t size;
    bool alike;     /* all blocks are of one size */
    bool joined;    /* they are contiguous in rank order; empty ones may be anywhere */
    bool ascending; /* none begins before the one before it ends; empty ones may be anywhere */
} han_blocks;

/* Take the memory for the counts, and behind them for the rest, which is NULL before: false,
 * without an exception, if there is none. The caller frees it with PyMem_Free. */
bool han_py_blocks(han_blocks *, uint64_t **counts, int32_t size);

/* Read the number of elements of each block. */
bool han_py_read_counts(PyObject *, han_blocks *);

/* Read a buffer of blocks: a list with counts, and maybe displacements. The buffer ends with the last
 * block. Blocks in another order than that of ranks are refused. */
bool han_py_read_vector(const ReaderObject *, PyObject *, han_blocks *, han_buffer *);

/* The same, for blocks in any order, of derived types too, which may overlap if they are only read. A
 * buffer without counts is divided evenly; the first ranks get an element more where some are left. */
bool han_py_read_any_vector(const ReaderObject *, PyObject *, bool only_read, han_blocks *,
                            han_buffer *);

/* Read a buffer whose blocks have types of their own: a list with types, and maybe counts and
 * displacements. All numbers of blocks are in bytes then. The type of the buffer is a tuple of them, or
 * NULL if none of the blocks that hold data has gaps. */
bool han_py_read_typed(const ReaderObject *, PyObject *, han_blocks *, han_buffer *);

#endif
