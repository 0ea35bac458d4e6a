/* The instructions of a program: records of a fixed size that Python builds and C executes.
 * han/model/program.py holds the same layout as a NumPy dtype. */
#ifndef HAN_PROGRAM_H
#define HAN_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum han_code {
    HAN_COPY,       /* ref0 <- ref1, n bytes */
    HAN_REDUCE,     /* ref0 = ref1 op ref2, n elements, operands in this order */
    HAN_ACCUMULATE, /* ref0 = ref0 (also ref1) op ref2, n elements; with others in any order */
    HAN_REDUCE2,    /* as HAN_REDUCE, with a second copy of the result in ref3 */
    HAN_POST,       /* flag at ref0 = epoch + n, release; peer: the channel */
    HAN_WAIT,       /* wait until flag at ref0 >= epoch + n, acquire; peer: the rank that posts */
    HAN_ISEND,      /* send n bytes of ref1 to peer, with request `slot`; or as many as ref2 says */
    HAN_IRECV,      /* receive n bytes into ref0 from peer, with request `slot` */
    HAN_TEST, /* wait until request `slot` is complete; of a receive: n bytes from rank `peer`, or at
                * most so many, and ref0 tells how many */
    HAN_AWAIT,  /* wait until stream `peer` has passed its instruction n */
    HAN_COLL,   /* start or run the MPI library's collective `kind` on communicator `comm` */
    HAN_PULL,   /* ref0 <- ref1 in the memory of rank `peer`, n bytes, by cross-memory attach */
    HAN_PUSH,   /* ref0 in the memory of rank `peer` <- ref1, n bytes, likewise */
    HAN_EXPECT, /* the number at ref0, which rank `peer` has stored, must be n */
    HAN_PACK, /* ref0 <- ref1, n bytes in slots of `slot` bytes: append them to the parcel at ref2 */
    HAN_UNPACK, /* ref0 <- ref1, n bytes in such slots: all of the parcel at ref2, of rank `peer` */
    HAN_TALLY, /* ref0 += how many of the n bytes of sizes at ref1 are of blocks that fit into slots of
                 * `slot` bytes; peer: whether they are the first ones */
    HAN_CODES
};

/* A code with this bit does nothing: in a run of a plan for own sizes (engine/sizes.h), the block has
 * a size for which the operation is not meant. */
#define HAN_VOID 0x200u

/* In a run of a plan for own sizes, a receiver's size with this bit is the most that may come. */
#define HAN_AT_MOST_BIT 63
#define HAN_AT_MOST (UINT64_C(1) << HAN_AT_MOST_BIT)

/* Whether an operation copies bytes, or combines elements. */
static inline bool han_copies(unsigned code) {
    return code == HAN_COPY || code == HAN_PULL || code == HAN_PUSH || code == HAN_PACK ||
           code == HAN_UNPACK;
}
static inline bool han_reduces(unsigned code) {
    return code == HAN_REDUCE || code == HAN_ACCUMULATE || code == HAN_REDUCE2;
}

/* Of the operations that take time a stream executes so many in one turn: a limit, so that messages
 * of other streams do not wait. An eager message is sent at once, so the branches of a tree would
 * follow each other without it. */
enum { HAN_TURN = 4 };
static inline bool han_takes_time(unsigned code) {
    return han_copies(code) || han_reduces(code) || code == HAN_ISEND;
}

enum han_coll {
    HAN_C_BCAST,
    HAN_C_REDUCE,
    HAN_C_ALLREDUCE,
    HAN_C_BARRIER,
    HAN_C_GATHER, /* from here on no HAN_COLL: these identify calls in python/py_calls.c */
    HAN_C_SCATTER,
    HAN_C_ALLGATHER,
    HAN_C_ALLTOALL,
    HAN_C_REDUCE_SCATTER,
    HAN_C_GATHERV,
    HAN_C_SCATTERV,
    HAN_C_ALLTOALLV,
    HAN_C_SCAN,
    HAN_C_EXSCAN,
    HAN_C_BLOCKING = 16
};

/* The memory that a reference points to; the engine sets the addresses at the start of a run. */
enum han_base {
    HAN_B_NONE,
    HAN_B_SEND,
    HAN_B_RECV,
    HAN_B_SCRATCH,
    HAN_B_TABLE,   /* the blocks of the run, of a plan for own sizes: han_block */
    HAN_B_CHANNEL, /* three for each channel: small slots (of this run's bank), cells, flags */
    HAN_B_SMALL = 0,
    HAN_B_CELLS = 1,
    HAN_B_FLAGS = 2,
    HAN_B_PER_CHANNEL = 3
};

/* A base with this bit is a peer's buffer in memory that this process maps too. The other bits say
 * which buffer (HAN_B_SEND to HAN_B_SCRATCH, 2 bits), in which channel the peer shows its address
 * (3 bits), and the peer's place in that channel (10 bits). */
#define HAN_B_PEER 0x8000u
#define HAN_PEER_BUFFER_SHIFT 13
#define HAN_PEER_CHANNEL_SHIFT 10
#define HAN_PEER_BUFFER(base) (((base) >> HAN_PEER_BUFFER_SHIFT) & 3u)
#define HAN_PEER_CHANNEL(base) (((base) >> HAN_PEER_CHANNEL_SHIFT) & 7u)
#define HAN_PEER_SLOT(base) ((base) & ((1u << HAN_PEER_CHANNEL_SHIFT) - 1))

#define HAN_MAX_CHANNELS 8
#define HAN_MAX_STREAMS 32 /* of a program; also the number of message tags of a run */
#define HAN_MAX_BASES (HAN_B_CHANNEL + HAN_B_PER_CHANNEL * HAN_MAX_CHANNELS)

typedef struct {
    uint16_t code;
    uint16_t stream; /* the message tag's low part */
    int32_t peer;    /* rank, stream or collective's root */
    uint16_t base[4];
    uint64_t off[4];
    uint64_t n;
    uint32_t slot; /* request */
    uint32_t task; /* index of the task's name, for traces and reports */
} han_instr;

_Static_assert(sizeof(han_instr) == 64, "one cache line, as in han/model/program.py");

/* Of a program for many sizes, for each instruction: which grains of the message it moves, from
 * `start` to `stop`; for each operand a constant offset, how many blocks lie before it, and which
 * grain is there; the bytes of what `n` counts (0: `n` is constant). Where blocks differ in size, it
 * moves grains of block `block`. If `count` is not 0 it moves so many whole blocks, from `block` on,
 * and `start`, `stop` and origins are 0. han/model/program.py: TERMS.
 *
 * In a plan for own sizes it moves all of block `block`, which is of more than `start` and at most
 * `stop` bytes, or does nothing; `stop` 0: whatever the size. Block 0 is empty, and where an operand
 * is, behind a constant offset, is told by the table's block `blocks`. */
typedef struct {
    uint64_t offset[4];
    uint32_t start, stop;
    uint32_t origin[4];
    uint16_t blocks[4];
    uint32_t each;
    uint16_t block, count;
} han_term;

/* HAN_ISEND and HAN_IRECV do nothing if base[3] is not HAN_B_NONE and ref3 says 0. */

/* HAN_COLL stores two arguments in offsets that it does not need. */
#define HAN_COLL_KIND(i) ((unsigned)(i)->off[2])
#define HAN_COLL_COMM(i) ((unsigned)(i)->off[3])

/* So do HAN_PULL and HAN_PUSH: the channel in which the peer shows its addresses, and its place. If
 * base[2] is not HAN_B_NONE, a number that the peer has stored, `slot` bytes behind that base, says
 * how far from the given place to read or write. */
#define HAN_ATTACH_CHANNEL(i) ((unsigned)(i)->off[2])
#define HAN_ATTACH_SLOT(i) ((unsigned)(i)->off[3])

/* Not an instruction but a mark: the end of a loop. The `n` records before it are carried out off[0]
 * times; the stride of the first of them is number off[1]. Loops are not nested. */
#define HAN_LOOP 0x100u
#define HAN_LOOP_TIMES(i) ((uint32_t)(i)->off[0])
#define HAN_LOOP_STRIDES(i) ((uint32_t)(i)->off[1])

/* What changes in a record of a loop, and in its term, from one time to the next, modulo the width of
 * each field; `start` also in the term's `stop`. han/model/loops.py: STRIDES. */
typedef struct {
    uint64_t off[4], offset[4];
    uint64_t n;
    uint32_t start, origin[4], block, task;
    int32_t peer;
    uint16_t base[4], blocks[4];
} han_stride;

_Static_assert(sizeof(han_stride) == 120, "no padding: strides are compared as bytes");

/* The instructions of one stream. */
typedef struct {
    uint32_t start, stop;
} han_stream;

#endif
