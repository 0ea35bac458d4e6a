/* The primitive operations of a Program: fixed-size records that Python builds
 * (han/model/program.py holds the same layout as a NumPy dtype) and C runs as they are. */
#ifndef HAN_PROGRAM_H
#define HAN_PROGRAM_H

#include <stdint.h>

enum han_code {
    HAN_COPY,    /* ref0 <- ref1, n bytes */
    HAN_REDUCE,  /* ref0 = ref1 op ref2, n elements: the order is the order of operands */
    HAN_REDUCE2, /* the same, written to ref3 too */
    HAN_POST,    /* flag at ref0 = epoch + n, release; peer: the channel */
    HAN_WAIT,    /* until flag at ref0 >= epoch + n, acquire; peer: the rank waited for */
    HAN_ISEND,   /* ref1, n bytes, to peer, into request `slot` */
    HAN_IRECV,   /* ref0, n bytes, from peer, into request `slot` */
    HAN_TEST,    /* until request `slot` is complete */
    HAN_AWAIT,   /* until stream `peer` has passed instruction n of its own */
    HAN_COLL,    /* the MPI library's collective `kind` on communicator `comm` */
    HAN_PULL,    /* ref0 <- ref1 in the memory of rank `peer`, n bytes: cross-memory attach */
    HAN_PUSH,    /* ref0 in the memory of rank `peer` <- ref1, n bytes: likewise */
    HAN_CODES
};

enum han_coll {
    HAN_C_BCAST,
    HAN_C_REDUCE,
    HAN_C_ALLREDUCE,
    HAN_C_BARRIER,
    HAN_C_GATHER, /* these only name calls (py_calls.c) */
    HAN_C_SCATTER,
    HAN_C_ALLGATHER,
    HAN_C_ALLTOALL,
    HAN_C_REDUCE_SCATTER,
    HAN_C_BLOCKING = 16
};

/* Where a reference points: bases are filled in at each run. */
enum han_base {
    HAN_B_NONE,
    HAN_B_SEND,
    HAN_B_RECV,
    HAN_B_SCRATCH,
    HAN_B_CHANNEL, /* three a channel follow: small slots (current bank), cells (this run's part), flags */
    HAN_B_SMALL = 0,
    HAN_B_CELLS = 1,
    HAN_B_FLAGS = 2,
    HAN_B_PER_CHANNEL = 3
};

/* With this bit a base is a buffer of a peer's, in memory that this process maps too: which of
 * HAN_B_SEND to HAN_B_SCRATCH (2 bits), in which channel the peer shows it (3), its place there. */
#define HAN_B_PEER 0x8000u
#define HAN_PEER_BUFFER(base) (((base) >> 13) & 3u)
#define HAN_PEER_CHANNEL(base) (((base) >> 10) & 7u)
#define HAN_PEER_SLOT(base) ((base) & 1023u)

#define HAN_MAX_CHANNELS 8
#define HAN_MAX_BASES (HAN_B_CHANNEL + HAN_B_PER_CHANNEL * HAN_MAX_CHANNELS)

typedef struct {
    uint16_t code;
    uint16_t stream; /* the message tag's low part */
    int32_t peer;    /* rank, stream or collective's root */
    uint16_t base[4];
    uint64_t off[4];
    uint64_t n;
    uint32_t slot; /* request */
    uint32_t task; /* index into the names of the plan's tasks: for traces and reports */
} han_instr;

_Static_assert(sizeof(han_instr) == 64, "one cache line, as in han/model/program.py");

/* HAN_COLL keeps its small arguments where other codes keep an offset. */
#define HAN_COLL_KIND(i) ((unsigned)(i)->off[2])
#define HAN_COLL_COMM(i) ((unsigned)(i)->off[3])

/* HAN_PULL and HAN_PUSH say so where to find what the peer shows: its channel, and its place in it. */
#define HAN_ATTACH_CHANNEL(i) ((unsigned)(i)->off[2])
#define HAN_ATTACH_SLOT(i) ((unsigned)(i)->off[3])

typedef struct {
    uint32_t start, stop;
} han_stream;

#endif
