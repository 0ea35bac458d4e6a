/* MPI's collectives, as C programs call them. Those of MPI 4 with large counts have the same
 * arguments, of another width. */
#include <limits.h>

#include "door/inside.h"
#include "program.h"

enum { ERR_COUNT = 2 }; /* in MPICH and in Open MPI */

#define H(ARGUMENT) han_as_handle(ARGUMENT)

/* Define a call and the one with large counts, which MPI libraries before MPI 4 do not have. `N` is the
 * type of counts, `LARGEST` the larger one. */
#define DEFINE(NAME, PARAMETERS, TYPES, ARGUMENTS, LARGEST, ...)                     \
    HAN_PUBLIC int MPI_##NAME PARAMETERS(int) {                                      \
        int code = han_door_serve(&(han_door_call){__VA_ARGS__});                    \
        return code != HAN_DOOR_LEFT ? code : HAN_MPIS(NAME, TYPES(int), ARGUMENTS); \
    }                                                                                \
    HAN_PUBLIC int MPI_##NAME##_c PARAMETERS(int64_t) {                              \
        static void *known;                                                          \
        int code = han_door_serve(&(han_door_call){__VA_ARGS__});                    \
        if (code != HAN_DOOR_LEFT) return code;                                      \
        if (han_has(&known, "PMPI_" #NAME "_c"))                                     \
            return HAN_MPIS(NAME##_c, TYPES(int64_t), ARGUMENTS);                    \
        if ((LARGEST) > INT_MAX) return ERR_COUNT;                                   \
        return HAN_MPIS(NAME, TYPES(int), ARGUMENTS);                                \
    }
#define LIST(...) __VA_ARGS__

HAN_PUBLIC int MPI_Barrier(intptr_t comm) {
    int code = han_door_serve(&(han_door_call){.collective = HAN_C_BARRIER, .comm = H(comm)});
    return code != HAN_DOOR_LEFT ? code : HAN_MPIS(Barrier, (intptr_t), comm);
}

/* buffer, count, type, root, comm */
#define ROOTED(N) (void *buf, N n, intptr_t type, int root, intptr_t comm)
#define ROOTED_TYPES(N) (void *, N, intptr_t, int, intptr_t)
DEFINE(Bcast, ROOTED, ROOTED_TYPES, LIST(buf, n, type, root, comm), n, .collective = HAN_C_BCAST,
       .recv = buf, .n_recv = n, .recv_type = H(type), .root = root, .comm = H(comm))

/* both buffers, count, type, operation, root, comm */
#define REDUCED(N) \
    (const void *send, void *recv, N n, intptr_t type, intptr_t op, int root, intptr_t comm)
#define REDUCED_TYPES(N) (const void *, void *, N, intptr_t, intptr_t, int, intptr_t)
DEFINE(Reduce, REDUCED, REDUCED_TYPES, LIST(send, recv, n, type, op, root, comm), n,
       .collective = HAN_C_REDUCE, .send = send, .recv = recv, .n_send = n, .n_recv = n,
       .send_type = H(type), .recv_type = H(type), .op = H(op), .root = root, .comm = H(comm))

/* the same without a root */
#define COMBINED(N) (const void *send, void *recv, N n, intptr_t type, intptr_t op, intptr_t comm)
#define COMBINED_TYPES(N) (const void *, void *, N, intptr_t, intptr_t, intptr_t)
#define DEFINE_COMBINED(NAME, NUMBER)                                                  \
    DEFINE(NAME, COMBINED, COMBINED_TYPES, LIST(send, recv, n, type, op, comm), n,     \
           .collective = NUMBER, .send = send, .recv = recv, .n_send = n, .n_recv = n, \
           .send_type = H(type), .recv_type = H(type), .op = H(op), .comm = H(comm))
DEFINE_COMBINED(Allreduce, HAN_C_ALLREDUCE)
DEFINE_COMBINED(Scan, HAN_C_SCAN)
DEFINE_COMBINED(Exscan, HAN_C_EXSCAN)
DEFINE_COMBINED(Reduce_scatter_block, HAN_C_REDUCE_SCATTER)

/* blocks sent, blocks received, root, comm */
#define BLOCKS_ROOTED(N)                                                                       \
    (const void *send, N n_send, intptr_t send_type, void *recv, N n_recv, intptr_t recv_type, \
     int root, intptr_t comm)
#define BLOCKS_ROOTED_TYPES(N) (const void *, N, intptr_t, void *, N, intptr_t, int, intptr_t)
#define DEFINE_BLOCKS_ROOTED(NAME, NUMBER)                                                      \
    DEFINE(NAME, BLOCKS_ROOTED, BLOCKS_ROOTED_TYPES,                                            \
           LIST(send, n_send, send_type, recv, n_recv, recv_type, root, comm),                  \
           n_send > n_recv ? n_send : n_recv, .collective = NUMBER, .send = send, .recv = recv, \
           .n_send = n_send, .n_recv = n_recv, .send_type = H(send_type),                       \
           .recv_type = H(recv_type), .root = root, .comm = H(comm))
DEFINE_BLOCKS_ROOTED(Gather, HAN_C_GATHER)
DEFINE_BLOCKS_ROOTED(Scatter, HAN_C_SCATTER)

#define BLOCKS(N)                                                                              \
    (const void *send, N n_send, intptr_t send_type, void *recv, N n_recv, intptr_t recv_type, \
     intptr_t comm)
#define BLOCKS_TYPES(N) (const void *, N, intptr_t, void *, N, intptr_t, intptr_t)
#define DEFINE_BLOCKS(NAME, NUMBER)                                                             \
    DEFINE(NAME, BLOCKS, BLOCKS_TYPES,                                                          \
           LIST(send, n_send, send_type, recv, n_recv, recv_type, comm),                        \
           n_send > n_recv ? n_send : n_recv, .collective = NUMBER, .send = send, .recv = recv, \
           .n_send = n_send, .n_recv = n_recv, .send_type = H(send_type),                       \
           .recv_type = H(recv_type), .comm = H(comm))
DEFINE_BLOCKS(Allgather, HAN_C_ALLGATHER)
DEFINE_BLOCKS(Alltoall, HAN_C_ALLTOALL)
