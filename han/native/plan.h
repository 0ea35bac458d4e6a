/* A plan: a program with the memory, communicators and kernels that it runs with on this rank. */
#ifndef HAN_PLAN_H
#define HAN_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi_table.h"
#include "program.h"
#include "reductions.h"

enum { HAN_SHIFTS = 2 }; /* buffers of a rank that peers may map: send and receive buffer */

/* What a rank's run writes for its peers in a channel, as bits of han_plan.writes: data in small
 * slots, data in cells, the addresses of its buffers, the same for peers that write to them. */
enum { HAN_W_SMALL = 1, HAN_W_CELLS = 2, HAN_W_SHOWN = 8, HAN_W_GIVEN = 16 };

/* Two kinds of stores, and what each costs at present: data/stores.h. */
enum han_way { HAN_WAY_USUAL, HAN_WAY_OTHER };
typedef struct {
    uint32_t cost[2]; /* nanoseconds for 1 MiB; 0: not measured yet */
    uint32_t times;   /* decisions so far */
} han_ways;

/* Bytes that the runs of a plan have moved on this rank. The thread that steps the engine writes
 * them, during a run too; any thread may read them. */
typedef struct {
    _Atomic uint64_t runs;                       /* finished */
    _Atomic uint64_t copied, combined, attached; /* combined: bytes of results */
    _Atomic uint64_t mapped; /* bytes copied or combined that were read from peers' arrays */
    _Atomic uint64_t sent, received; /* in messages */
} han_counts;

/* A block of the call that the code is fitted to. */
typedef struct {
    uint64_t nbytes, start;
    uint64_t rate; /* grains of this block for one of the largest: engine/sizes.h */
} han_block;

typedef struct han_plan {
    const han_instr *code;
    /* Of a plan with loops: engine/loops.h. While a run carries out a loop, its records and terms
     * are those of the present time. */
    const han_stride *strides; /* NULL: it has none */
    /* Of a plan for many sizes: engine/sizes.h. The largest message has `grains` times `grain`
     * bytes; at present the code is that of a message of `nbytes`. */
    han_term *terms;   /* NULL: the plan is for one size */
    han_instr *fitted; /* the code, to be written */
    uint64_t grains, grain, nbytes;
    han_block message; /* of `nbytes` bytes, unless blocks differ in size */
    han_block *table;  /* the blocks of a call whose blocks differ in size; else NULL */
    uint32_t n_blocks;
    bool own; /* each run brings sizes and places of the blocks that this rank sends or receives */
    uint64_t share; /* bytes of the caches, for one rank */
    uint32_t n_code;
    uint32_t n_streams, n_requests, n_comms;
    han_stream streams[HAN_MAX_STREAMS];
    uint64_t *requests;
    const han_handle *comms;
    uint8_t *scratch;
    uint64_t scratch_size;
    uint64_t footprint[HAN_MAX_CHANNELS]; /* of each ring, in bytes; same on all ranks */
    uint8_t writes[HAN_MAX_CHANNELS];     /* HAN_W_SMALL and so on */
    bool sync;      /* a rank that finishes knows that every rank has entered the run */
    bool blocks;    /* calls blocking collectives of the MPI library */
    bool calls_mpi; /* also without blocking */
    bool shows;     /* peers may read the buffers of this rank */
    han_ways shown; /* how results that peers read in this rank's buffers are stored */
    bool streaming; /* copies to the receive buffer bypass the caches */
    bool much;      /* copies to the receive buffer exceed the second-level cache */
    bool brief;     /* takes microseconds, calls no MPI and no Python: may run with the GIL held */
    uint64_t signature;
    uint64_t number;      /* identifies the plan in traces */
    han_reduce_fn reduce; /* NULL: MPI_Reduce_local with op and dtype */
    han_reduce2_fn reduce2;
    size_t element;
    han_handle op, dtype;
    bool unpacks; /* operands are packed elements of `dtype`, to be unpacked and combined */
    /* By rank and buffer (send, receive): what to add to a peer's address of its buffer to get the
     * address of the same memory in this process. NULL: no peer's memory is mapped. */
    const uint64_t *shifts;
    uint8_t *operand; /* room for an operand of MPI_Reduce_local */
    size_t operand_size;
    /* The plan that all ranks run instead if all of them offer it: engine/stepping.h. It takes as
     * much of the rings as this one. NULL until this rank can offer it. */
    struct han_plan *_Atomic alternative;
    uint64_t arena, arena_size; /* of this rank; 0 bytes: no rank has an alternative */
    /* The plan that all ranks run instead where trials find it faster: engine/trials.h. It takes as
     * much of the rings as this one. It exists before the first run. */
    struct han_plan *_Atomic rival;
    uint64_t tried; /* identifies the call and both plans, alike on all ranks; 0: it has no rival */
    uint32_t first; /* runs before the first trial */
    uint32_t burst; /* 0, or ranks run ahead of each other, so they meet before and after each burst
                       of so many runs */
    uint32_t whole; /* the channel of all ranks */
    han_counts counts;
} han_plan;

/* Whether peers can read a buffer where it is: it is in this rank's arena, or there is none. */
static inline bool han_in_arena(const han_plan *p, const void *buffer) {
    return !buffer || (uint64_t)(uintptr_t)buffer - p->arena < p->arena_size;
}

#endif
