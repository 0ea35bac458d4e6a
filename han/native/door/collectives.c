/* MPI's collectives, as C programs call them. Those of MPI 4 with large counts have the same
 * arguments, of another width. */
#include <limits.h>
#include <stdlib.h>

#include "door/inside.h"
#include "program.h"

enum { ERR_COUNT = 2 }; /* in MPICH and in Open MPI */

#define H(ARGUMENT) han_as_handle(ARGUMENT)
#define LIST(...) __VA_ARGS__
#define SIDE(DATA, N, TYPE) {.data = DATA, .n = N, .type = H(TYPE)}
#define SIDES(DATA, COUNTS, PLACES, TYPE) \
    {.data = DATA, .counts = COUNTS, .places = PLACES, .type = H(TYPE)}

/* Define a call and the one with large counts, which MPI libraries before MPI 4 do not have. `N` is the
 * type of counts, `D` that of displacements. `SMALL` calls MPI with counts that were large; its value is
 * MPI's code. */
#define DEFINE(NAME, PARAMETERS, TYPES, ARGUMENTS, SMALL, ...)                                    \
    HAN_PUBLIC int MPI_##NAME PARAMETERS(int, int) {                                              \
        int code = han_door_serve(&(han_door_call){__VA_ARGS__});                                 \
        return code != HAN_DOOR_LEFT ? code                                                       \
                                     : han_door_left(HAN_MPIS(NAME, TYPES(int, int), ARGUMENTS)); \
    }                                                                                             \
    HAN_PUBLIC int MPI_##NAME##_c PARAMETERS(int64_t, intptr_t) {                                 \
        static void *known;                                                                       \
        int code = han_door_serve(&(han_door_call){__VA_ARGS__, .large = true});                  \
        if (code != HAN_DOOR_LEFT) return code;                                                   \
        if (han_has(&known, "PMPI_" #NAME "_c"))                                                  \
            return han_door_left(HAN_MPIS(NAME##_c, TYPES(int64_t, intptr_t), ARGUMENTS));        \
        return han_door_left(SMALL);                                                              \
    }
/* Call MPI's function with counts of its own type if the largest one fits. */
#define FITTING(NAME, LARGEST, TYPES, ...) \
    ((LARGEST) > INT_MAX ? ERR_COUNT : HAN_MPIS(NAME, TYPES(int, int), __VA_ARGS__))

HAN_PUBLIC int MPI_Barrier(intptr_t comm) {
    int code = han_door_serve(&(han_door_call){.collective = HAN_C_BARRIER, .comm = H(comm)});
    return code != HAN_DOOR_LEFT ? code : han_door_left(HAN_MPIS(Barrier, (intptr_t), comm));
}

/* ---- whole messages -------------------------------------------------------------------------- */

#define ROOTED(N, D) (void *buf, N n, intptr_t type, int root, intptr_t comm)
#define ROOTED_TYPES(N, D) (void *, N, intptr_t, int, intptr_t)

DEFINE(Bcast, ROOTED, ROOTED_TYPES, LIST(buf, n, type, root, comm),
       FITTING(Bcast, n, ROOTED_TYPES, buf, (int)n, type, root, comm), .collective = HAN_C_BCAST,
       .recv = SIDE(buf, n, type), .root = root, .comm = H(comm))

#define REDUCED(N, D) \
    (const void *send, void *recv, N n, intptr_t type, intptr_t op, int root, intptr_t comm)
#define REDUCED_TYPES(N, D) (const void *, void *, N, intptr_t, intptr_t, int, intptr_t)
DEFINE(Reduce, REDUCED, REDUCED_TYPES, LIST(send, recv, n, type, op, root, comm),
       FITTING(Reduce, n, REDUCED_TYPES, send, recv, (int)n, type, op, root, comm),
       .collective = HAN_C_REDUCE, .send = SIDE(send, n, type), .recv = SIDE(recv, n, type),
       .op = H(op), .root = root, .comm = H(comm))

#define COMBINED(N, D) \
    (const void *send, void *recv, N n, intptr_t type, intptr_t op, intptr_t comm)
#define COMBINED_TYPES(N, D) (const void *, void *, N, intptr_t, intptr_t, intptr_t)
#define DEFINE_COMBINED(NAME, NUMBER)                                                      \
    DEFINE(NAME, COMBINED, COMBINED_TYPES, LIST(send, recv, n, type, op, comm),            \
           FITTING(NAME, n, COMBINED_TYPES, send, recv, (int)n, type, op, comm),           \
           .collective = NUMBER, .send = SIDE(send, n, type), .recv = SIDE(recv, n, type), \
           .op = H(op), .comm = H(comm))
DEFINE_COMBINED(Allreduce, HAN_C_ALLREDUCE)
DEFINE_COMBINED(Scan, HAN_C_SCAN)
DEFINE_COMBINED(Exscan, HAN_C_EXSCAN)
DEFINE_COMBINED(Reduce_scatter_block, HAN_C_REDUCE_SCATTER)

/* ---- equal blocks ---------------------------------------------------------------------------- */

#define LARGER(A, B) ((A) > (B) ? (A) : (B))
#define BLOCKS_ROOTED(N, D)                                                                    \
    (const void *send, N n_send, intptr_t send_type, void *recv, N n_recv, intptr_t recv_type, \
     int root, intptr_t comm)
#define BLOCKS_ROOTED_TYPES(N, D) (const void *, N, intptr_t, void *, N, intptr_t, int, intptr_t)
#define DEFINE_BLOCKS_ROOTED(NAME, NUMBER)                                               \
    DEFINE(NAME, BLOCKS_ROOTED, BLOCKS_ROOTED_TYPES,                                     \
           LIST(send, n_send, send_type, recv, n_recv, recv_type, root, comm),           \
           FITTING(NAME, LARGER(n_send, n_recv), BLOCKS_ROOTED_TYPES, send, (int)n_send, \
                   send_type, recv, (int)n_recv, recv_type, root, comm),                 \
           .collective = NUMBER, .send = SIDE(send, n_send, send_type),                  \
           .recv = SIDE(recv, n_recv, recv_type), .root = root, .comm = H(comm))
DEFINE_BLOCKS_ROOTED(Gather, HAN_C_GATHER)
DEFINE_BLOCKS_ROOTED(Scatter, HAN_C_SCATTER)

#define BLOCKS(N, D)                                                                           \
    (const void *send, N n_send, intptr_t send_type, void *recv, N n_recv, intptr_t recv_type, \
     intptr_t comm)
#define BLOCKS_TYPES(N, D) (const void *, N, intptr_t, void *, N, intptr_t, intptr_t)
#define DEFINE_BLOCKS(NAME, NUMBER)                                                                \
    DEFINE(NAME, BLOCKS, BLOCKS_TYPES,                                                             \
           LIST(send, n_send, send_type, recv, n_recv, recv_type, comm),                           \
           FITTING(NAME, LARGER(n_send, n_recv), BLOCKS_TYPES, send, (int)n_send, send_type, recv, \
                   (int)n_recv, recv_type, comm),                                                  \
           .collective = NUMBER, .send = SIDE(send, n_send, send_type),                            \
           .recv = SIDE(recv, n_recv, recv_type), .comm = H(comm))
DEFINE_BLOCKS(Allgather, HAN_C_ALLGATHER)
DEFINE_BLOCKS(Alltoall, HAN_C_ALLTOALL)

/* ---- blocks of their own sizes ---------------------------------------------------------------- */

/* Numbers of 64 bits as ints, in memory that the caller frees; NULL if one does not fit, or there are
 * none. */
static int *narrowed(intptr_t comm, const int64_t *numbers, bool *fit) {
    int size = 0;
    if (!numbers || HAN_MPIS(Comm_size, (intptr_t, int *), comm, &size)) return NULL;
    int *found = malloc(sizeof *found * (size_t)size + 1);
    for (int r = 0; found && r < size; r++) {
        *fit = *fit && numbers[r] >= INT_MIN && numbers[r] <= INT_MAX;
        found[r] = (int)numbers[r];
    }
    *fit = *fit && found;
    return found;
}
/* Counts that only the root gives. */
static const void *of_root(intptr_t comm, int root, const void *numbers) {
    int rank = 0;
    return !HAN_MPIS(Comm_rank, (intptr_t, int *), comm, &rank) && rank == root ? numbers : NULL;
}
/* Carry out a call of MPI with the ints `a`, `b`, `c` and `d` for counts and displacements of 64 bits. */
#define NARROWED(COMM, A, B, C, D, CALL)                  \
    ({                                                    \
        bool fit = true;                                  \
        int *a = narrowed(COMM, (const void *)(A), &fit); \
        int *b = narrowed(COMM, (const void *)(B), &fit); \
        int *c = narrowed(COMM, (const void *)(C), &fit); \
        int *d = narrowed(COMM, (const void *)(D), &fit); \
        int narrow_code = fit ? (CALL) : ERR_COUNT;       \
        free(a), free(b), free(c), free(d);               \
        narrow_code;                                      \
    })

#define GATHERV(N, D)                                                                              \
    (const void *send, N n_send, intptr_t send_type, void *recv, const N *counts, const D *places, \
     intptr_t recv_type, int root, intptr_t comm)
#define GATHERV_TYPES(N, D) \
    (const void *, N, intptr_t, void *, const N *, const D *, intptr_t, int, intptr_t)
DEFINE(Gatherv, GATHERV, GATHERV_TYPES,
       LIST(send, n_send, send_type, recv, counts, places, recv_type, root, comm),
       NARROWED(comm, of_root(comm, root, counts), of_root(comm, root, places), NULL, NULL,
                FITTING(Gatherv, n_send, GATHERV_TYPES, send, (int)n_send, send_type, recv, a, b,
                        recv_type, root, comm)),
       .collective = HAN_C_GATHERV, .form = HAN_DOOR_COUNTED, .send = SIDE(send, n_send, send_type),
       .recv = SIDES(recv, counts, places, recv_type), .root = root, .comm = H(comm))

#define SCATTERV(N, D)                                                                             \
    (const void *send, const N *counts, const D *places, intptr_t send_type, void *recv, N n_recv, \
     intptr_t recv_type, int root, intptr_t comm)
#define SCATTERV_TYPES(N, D) \
    (const void *, const N *, const D *, intptr_t, void *, N, intptr_t, int, intptr_t)
DEFINE(Scatterv, SCATTERV, SCATTERV_TYPES,
       LIST(send, counts, places, send_type, recv, n_recv, recv_type, root, comm),
       NARROWED(comm, of_root(comm, root, counts), of_root(comm, root, places), NULL, NULL,
                FITTING(Scatterv, n_recv, SCATTERV_TYPES, send, a, b, send_type, recv, (int)n_recv,
                        recv_type, root, comm)),
       .collective = HAN_C_SCATTERV, .form = HAN_DOOR_COUNTED,
       .send = SIDES(send, counts, places, send_type), .recv = SIDE(recv, n_recv, recv_type),
       .root = root, .comm = H(comm))

#define ALLGATHERV(N, D)                                                                           \
    (const void *send, N n_send, intptr_t send_type, void *recv, const N *counts, const D *places, \
     intptr_t recv_type, intptr_t comm)
#define ALLGATHERV_TYPES(N, D) \
    (const void *, N, intptr_t, void *, const N *, const D *, intptr_t, intptr_t)
DEFINE(Allgatherv, ALLGATHERV, ALLGATHERV_TYPES,
       LIST(send, n_send, send_type, recv, counts, places, recv_type, comm),
       NARROWED(comm, counts, places, NULL, NULL,
                FITTING(Allgatherv, n_send, ALLGATHERV_TYPES, send, (int)n_send, send_type, recv, a,
                        b, recv_type, comm)),
       .collective = HAN_C_ALLGATHER, .form = HAN_DOOR_COUNTED,
       .send = SIDE(send, n_send, send_type), .recv = SIDES(recv, counts, places, recv_type),
       .comm = H(comm))

#define SCATTERED(N, D) \
    (const void *send, void *recv, const N *counts, intptr_t type, intptr_t op, intptr_t comm)
#define SCATTERED_TYPES(N, D) (const void *, void *, const N *, intptr_t, intptr_t, intptr_t)
DEFINE(Reduce_scatter, SCATTERED, SCATTERED_TYPES, LIST(send, recv, counts, type, op, comm),
       NARROWED(comm, counts, NULL, NULL, NULL,
                FITTING(Reduce_scatter, 0, SCATTERED_TYPES, send, recv, a, type, op, comm)),
       .collective = HAN_C_REDUCE_SCATTER, .form = HAN_DOOR_COUNTED,
       .send = SIDES(send, counts, NULL, type), .recv = SIDES(recv, counts, NULL, type),
       .op = H(op), .comm = H(comm))

#define ALLTOALLV(N, D)                                                                \
    (const void *send, const N *n_send, const D *from, intptr_t send_type, void *recv, \
     const N *n_recv, const D *to, intptr_t recv_type, intptr_t comm)
#define ALLTOALLV_TYPES(N, D) \
    (const void *, const N *, const D *, intptr_t, void *, const N *, const D *, intptr_t, intptr_t)
DEFINE(Alltoallv, ALLTOALLV, ALLTOALLV_TYPES,
       LIST(send, n_send, from, send_type, recv, n_recv, to, recv_type, comm),
       NARROWED(comm, n_send, from, n_recv, to,
                FITTING(Alltoallv, 0, ALLTOALLV_TYPES, send, a, b, send_type, recv, c, d, recv_type,
                        comm)),
       .collective = HAN_C_ALLTOALLV, .form = HAN_DOOR_COUNTED,
       .send = SIDES(send, n_send, from, send_type), .recv = SIDES(recv, n_recv, to, recv_type),
       .comm = H(comm))

#define ALLTOALLW(N, D)                                                                    \
    (const void *send, const N *n_send, const D *from, const void *send_types, void *recv, \
     const N *n_recv, const D *to, const void *recv_types, intptr_t comm)
#define ALLTOALLW_TYPES(N, D)                                                                      \
    (const void *, const N *, const D *, const void *, void *, const N *, const D *, const void *, \
     intptr_t)
DEFINE(Alltoallw, ALLTOALLW, ALLTOALLW_TYPES,
       LIST(send, n_send, from, send_types, recv, n_recv, to, recv_types, comm),
       NARROWED(comm, n_send, from, n_recv, to,
                FITTING(Alltoallw, 0, ALLTOALLW_TYPES, send, a, b, send_types, recv, c, d,
                        recv_types, comm)),
       .collective = HAN_C_ALLTOALLV, .form = HAN_DOOR_TYPED,
       .send = {.data = send, .counts = n_send, .places = from, .types = send_types},
       .recv = {.data = recv, .counts = n_recv, .places = to, .types = recv_types}, .comm = H(comm))
