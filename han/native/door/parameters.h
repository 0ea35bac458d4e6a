/* The parameters of MPI's collectives: P(N, D) with counts of type N and displacements of type D, and
 * P_TYPES(N, D), their types. */
#ifndef HAN_DOOR_PARAMETERS_H
#define HAN_DOOR_PARAMETERS_H

#include <stdint.h>

#define ROOTED(N, D) void *buf, N n, intptr_t type, int root, intptr_t comm
#define ROOTED_TYPES(N, D) void *, N, intptr_t, int, intptr_t
#define REDUCED(N, D) \
    const void *send, void *recv, N n, intptr_t type, intptr_t op, int root, intptr_t comm
#define REDUCED_TYPES(N, D) const void *, void *, N, intptr_t, intptr_t, int, intptr_t
#define COMBINED(N, D) const void *send, void *recv, N n, intptr_t type, intptr_t op, intptr_t comm
#define COMBINED_TYPES(N, D) const void *, void *, N, intptr_t, intptr_t, intptr_t
#define BLOCKS_ROOTED(N, D)                                                                   \
    const void *send, N n_send, intptr_t send_type, void *recv, N n_recv, intptr_t recv_type, \
        int root, intptr_t comm
#define BLOCKS_ROOTED_TYPES(N, D) const void *, N, intptr_t, void *, N, intptr_t, int, intptr_t
#define BLOCKS(N, D)                                                                          \
    const void *send, N n_send, intptr_t send_type, void *recv, N n_recv, intptr_t recv_type, \
        intptr_t comm
#define BLOCKS_TYPES(N, D) const void *, N, intptr_t, void *, N, intptr_t, intptr_t
#define GATHERV(N, D)                                                                             \
    const void *send, N n_send, intptr_t send_type, void *recv, const N *counts, const D *places, \
        intptr_t recv_type, int root, intptr_t comm
#define GATHERV_TYPES(N, D) \
    const void *, N, intptr_t, void *, const N *, const D *, intptr_t, int, intptr_t
#define SCATTERV(N, D)                                                                            \
    const void *send, const N *counts, const D *places, intptr_t send_type, void *recv, N n_recv, \
        intptr_t recv_type, int root, intptr_t comm
#define SCATTERV_TYPES(N, D) \
    const void *, const N *, const D *, intptr_t, void *, N, intptr_t, int, intptr_t
#define ALLGATHERV(N, D)                                                                          \
    const void *send, N n_send, intptr_t send_type, void *recv, const N *counts, const D *places, \
        intptr_t recv_type, intptr_t comm
#define ALLGATHERV_TYPES(N, D) \
    const void *, N, intptr_t, void *, const N *, const D *, intptr_t, intptr_t
#define SCATTERED(N, D) \
    const void *send, void *recv, const N *counts, intptr_t type, intptr_t op, intptr_t comm
#define SCATTERED_TYPES(N, D) const void *, void *, const N *, intptr_t, intptr_t, intptr_t
#define ALLTOALLV(N, D)                                                               \
    const void *send, const N *n_send, const D *from, intptr_t send_type, void *recv, \
        const N *n_recv, const D *to, intptr_t recv_type, intptr_t comm
#define ALLTOALLV_TYPES(N, D) \
    const void *, const N *, const D *, intptr_t, void *, const N *, const D *, intptr_t, intptr_t
#define ALLTOALLW(N, D)                                                                   \
    const void *send, const N *n_send, const D *from, const void *send_types, void *recv, \
        const N *n_recv, const D *to, const void *recv_types, intptr_t comm
#define ALLTOALLW_TYPES(N, D)                                                                     \
    const void *, const N *, const D *, const void *, void *, const N *, const D *, const void *, \
        intptr_t

/* Neighbours' places are addresses. */
#define ALLTOALLW_FAR(N, D) ALLTOALLW(N, intptr_t)
#define ALLTOALLW_FAR_TYPES(N, D) ALLTOALLW_TYPES(N, intptr_t)

/* X(name, the same in lower case, parameters) */
#define HAN_DOOR_COLLECTIVES(X)                             \
    X(Bcast, bcast, ROOTED)                                 \
    X(Reduce, reduce, REDUCED)                              \
    X(Allreduce, allreduce, COMBINED)                       \
    X(Scan, scan, COMBINED)                                 \
    X(Exscan, exscan, COMBINED)                             \
    X(Reduce_scatter_block, reduce_scatter_block, COMBINED) \
    X(Gather, gather, BLOCKS_ROOTED)                        \
    X(Scatter, scatter, BLOCKS_ROOTED)                      \
    X(Allgather, allgather, BLOCKS)                         \
    X(Alltoall, alltoall, BLOCKS)                           \
    X(Gatherv, gatherv, GATHERV)                            \
    X(Scatterv, scatterv, SCATTERV)                         \
    X(Allgatherv, allgatherv, ALLGATHERV)                   \
    X(Reduce_scatter, reduce_scatter, SCATTERED)            \
    X(Alltoallv, alltoallv, ALLTOALLV)                      \
    X(Alltoallw, alltoallw, ALLTOALLW)                      \
    X(Neighbor_allgather, neighbor_allgather, BLOCKS)       \
    X(Neighbor_alltoall, neighbor_alltoall, BLOCKS)         \
    X(Neighbor_allgatherv, neighbor_allgatherv, ALLGATHERV) \
    X(Neighbor_alltoallv, neighbor_alltoallv, ALLTOALLV)    \
    X(Neighbor_alltoallw, neighbor_alltoallw, ALLTOALLW_FAR)

#endif
