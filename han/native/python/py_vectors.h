/* Reads buffers with a block for each rank, given by counts, as han/message/uneven.py does. A reader
 * refuses what py_reader.h does, negative displacements, and blocks that overlap. */
#ifndef HAN_PY_VECTORS_H
#define HAN_PY_VECTORS_H

#include "python/py_reader.h"

/* Blocks of all ranks, in elements. */
typedef struct {
    uint64_t *counts, *places;      /* of each block; the caller owns the memory of both */
    uint64_t start, total, largest; /* before this rank's block; in all; in the largest block */
    int32_t rank, size;
    bool alike; /* all blocks are of one size */
} han_blocks;

/* Take the memory for the counts, and behind them for the places, which is NULL before: false,
 * without an exception, if there is none. The caller frees it with PyMem_Free. */
bool han_py_blocks(han_blocks *, uint64_t **counts, int32_t rank, int32_t size);

/* Read the number of elements of each block: one number that stands for all, or one for each. */
bool han_py_read_counts(PyObject *, han_blocks *);

/* Read a buffer of blocks in all spellings. Without counts its elements are divided evenly. The buffer
 * ends with the last block. If blocks are apart, its bytes are those of their data. */
bool han_py_read_vector(const ReaderObject *, PyObject *, han_blocks *, han_buffer *);

int han_py_add_vectors(PyObject *module);

#endif
