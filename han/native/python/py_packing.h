/* Packs elements of a type, and unpacks them. */
#ifndef HAN_PY_PACKING_H
#define HAN_PY_PACKING_H

#include "datatypes.h"
#include "python/py_reader.h"

/* Elements of a type in memory; `grid`: that of their data, if it is one. */
typedef struct {
    const han_grid *grid;
    han_handle type;
    uint64_t elements, nbytes;
    uint8_t *data;
} han_packing;

/* Pack elements, or unpack them: what MPI says. MPI's own lock may be held by a thread that waits for
 * Python's, so the caller does not hold this. */
int han_py_pack(const ReaderObject *, const han_packing *, uint8_t *packed);
int han_py_unpack(const ReaderObject *, const han_packing *, const uint8_t *packed);
/* Copy elements to others, with `room` for their data. */
int han_py_move(const ReaderObject *, const han_packing *from, const han_packing *to,
                uint8_t *room);

/* The grid of one element of the type that was asked for last; all zero: none yet. */
typedef struct {
    han_handle last;
    han_grid grid;
    int64_t extent;
} han_asked;

/* The grid of elements of a type. */
han_grid han_py_grid(const ReaderObject *, han_asked *, han_handle type, uint64_t elements);

#endif
