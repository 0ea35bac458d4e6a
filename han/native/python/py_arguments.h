/* Reads the arguments of collectives: the buffers, and the facts by which the plan is found. */
#ifndef HAN_PY_ARGUMENTS_H
#define HAN_PY_ARGUMENTS_H

#include "engine/sizes.h"
#include "grid.h"
#include "python/py_look_up.h"
#include "python/py_reader.h"

typedef struct {
    ReaderObject *reader;
    int32_t rank, size;
} han_caller;

/* Where a call receives. */
typedef enum {
    HAN_DIRECT, /* in the memory of the buffer */
    HAN_PACKED, /* a broadcast of a derived type: packed, in a copy, which the root sends */
    HAN_WHOLE,  /* blocks of one size, of a derived type on one side at least: a side whose data is
                    * not one run is packed, in a copy */
    HAN_GAPPED, /* elements with gaps: in a copy; their data is delivered */
    HAN_SCATTERED, /* blocks that are apart, or of a derived type: in a copy; they are delivered one by
                    * one */
    HAN_TYPED, /* blocks whose sizes two ranks know, of a derived type on one side at least: those
                * whose data is not one run are sent from, and received in, a copy */
} han_use;

typedef struct {
    han_buffer send, recv; /* the caller releases their objects */
    han_use use;
    bool copied; /* what is sent is a copy, of this moment: no persistent request may send it */
    bool meets;  /* blocks of derived types may have bytes in common with others */
    han_entry key;
    uint64_t *counts; /* bytes of each block, and behind them where each one is to begin; or NULL;
                       * the caller frees them with PyMem_Free */
    uint32_t numbers; /* how many of these a run needs */
    han_grid *grids;  /* of a copy: where the data of the blocks is, sent ones first */
} han_call;

/* A call of a collective of which nothing is read yet. Small parts are cleared faster than the whole. */
static inline void han_call_clear(han_call *c, int32_t collective) {
    c->send = c->recv = (han_buffer){0};
    c->use = HAN_DIRECT;
    c->copied = c->meets = false;
    c->key = (han_entry){.collective = collective};
    c->counts = NULL;
    c->numbers = 0;
    c->grids = NULL;
}

/* The numbers of a call whose blocks' sizes two ranks know: for each rank the bytes of the block to it,
 * then of that from it, and where each begins. A run does not need the others: the elements of each, and
 * the handles of their types in a call of a C program whose blocks have types of their own, else 0. */
typedef struct {
    uint64_t *sends, *takes, *from, *to, *sent, *taken, *sent_types, *taken_types;
} han_own_blocks;
enum { HAN_OWN_NUMBERS = 4, HAN_OWN_ALL = 8 }; /* for each rank: what a run needs, and all */

static inline han_own_blocks han_own_blocks_of(uint64_t *n, int32_t ranks) {
    const size_t all = (size_t)ranks;
    return (han_own_blocks){n,           n + all,     n + 2 * all, n + 3 * all,
                            n + 4 * all, n + 5 * all, n + 6 * all, n + 7 * all};
}

/* ---- what several readers do ---------------------------------------------------------------- */

/* Other objects than these may have an `__int__` that differs from their `__index__`. */
static inline bool han_root_of(PyObject *o, han_entry *key) {
    uint64_t root;
    if (!PyLong_Check(o) && !PyArray_IsScalar(o, Integer)) return false;
    bool found = han_py_whole(o, &root) && root <= INT32_MAX;
    key->root = found ? (int32_t)root : 0;
    return found;
}

/* Whether an argument says MPI.IN_PLACE; mpi4py takes None for it. */
static inline bool han_says_in_place(const han_caller *self, const PyObject *o) {
    return o == self->reader->in_place || o == Py_None;
}

/* Read a buffer whose elements have no gaps. */
static inline bool han_reads(const han_caller *self, PyObject *o, han_buffer *b) {
    return han_py_read(self->reader, o, 1, b) && !b->derived;
}

static inline bool han_writes(const han_caller *self, PyObject *o, han_buffer *b) {
    return han_reads(self, o, b) && !b->readonly;
}

/* Whether a call sends and receives in different memory. */
static inline bool han_apart(const han_call *c) {
    const han_buffer *a = &c->send, *b = &c->recv;
    const uint64_t sent = a->derived ? a->span : a->nbytes;
    const uint64_t received = b->derived ? b->span : b->nbytes;
    return !sent || !received || a->data + sent <= b->data || b->data + received <= a->data;
}

/* Whether blocks are sent and received in different memory, or their types may tell that they are. */
static inline bool han_may_be_apart(han_call *c) {
    c->meets = !han_apart(c);
    return !c->meets || c->send.derived || c->recv.derived;
}

/* Send a block that is in the memory where a call receives, from a place on. */
static inline void han_send_received(han_call *c, uint64_t place, uint64_t nbytes) {
    c->send = c->recv;
    c->send.owner = NULL;
    Py_XINCREF(c->send.datatype);
    c->send.data += place;
    c->send.nbytes = c->send.packed = nbytes;
    c->send.count = c->send.derived ? nbytes / c->send.size : 0;
}

/* ---- readers -------------------------------------------------------------------------------- */

/* Read arguments into a call that is all zero but for the collective; false, without an exception, if
 * they are refused. */
typedef bool han_reading(const han_caller *, PyObject *const *args, han_call *);

han_reading han_read_barrier, han_read_bcast, han_read_reduce, han_read_allreduce, han_read_exscan,
    han_read_gather, han_read_scatter, han_read_allgather, han_read_alltoall,
    han_read_reduce_scatter_block, han_read_allgatherv, han_read_reduce_scatter;
/* The call that tells all ranks how many elements each one receives: recv, and an array of 64-bit
 * numbers for them. */
han_reading han_read_recvcounts;

/* The sizes of blocks that differ, as bytes that a request owns; NULL if there are none. 0 or -1. */
int han_py_sizes_of(const han_caller *, const han_call *, PyObject **out);

#endif
