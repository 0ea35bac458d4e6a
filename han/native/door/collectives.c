/* MPI's collectives, as C programs call them: each one also nonblocking and persistent. Those of MPI 4
 * with large counts have the same arguments, of another width. */
#include "door/collectives.h"

#include <limits.h>
#include <stdlib.h>

#include "door/blocks.h"
#include "door/library.h"
#include "door/serving.h"
#include "door/parameters.h"
#include "door/requests.h"
#include "program.h"

enum { ERR_COUNT = 2 }; /* in MPICH and in Open MPI */

#define H(ARGUMENT) han_as_handle(ARGUMENT)
#define LIST(...) __VA_ARGS__
#define SIDE(DATA, N, TYPE) {.data = DATA, .n = N, .type = H(TYPE)}
#define SIDES(DATA, COUNTS, PLACES, TYPE) \
    {.data = DATA, .counts = COUNTS, .places = PLACES, .type = H(TYPE)}

static _Thread_local bool served; /* the last call */

bool han_door_served(void) { return served; }

/* Serve a call: MPI's code, or HAN_DOOR_LEFT. */
static int serve(han_door_call *c) {
    int code = c->when && !c->request ? HAN_DOOR_LEFT : han_door_serve(c);
    if (!code && c->when) han_door_keep(c);
    served = code != HAN_DOOR_LEFT;
    return code;
}

/* Call MPI's own function, which an older library may not have. */
#define CALL(NAME, TYPES, ...)                                              \
    ({                                                                      \
        static void *known;                                                 \
        han_has(&known, "PMPI_" #NAME) ? ((int(*) TYPES)known)(__VA_ARGS__) \
                                       : han_missing("MPI_" #NAME, comm);   \
    })

/* ---- calls with large counts of libraries that have none -------------------------------------- */

/* `n` numbers of 64 bits as ints, in memory that the caller frees; NULL if one does not fit, or there are
 * none. */
static int *narrowed(const void *numbers, int n, bool *fit) {
    const int64_t *wide = numbers;
    if (!numbers) return NULL;
    int *found = malloc(sizeof *found * (size_t)n + 1);
    for (int r = 0; found && r < n; r++) {
        *fit = *fit && wide[r] >= INT_MIN && wide[r] <= INT_MAX;
        found[r] = (int)wide[r];
    }
    *fit = *fit && found;
    return found;
}
/* Counts that only the root gives. It is MPI_ROOT in the root's group of an inter-communicator. */
static const void *of_root(intptr_t comm, int root, const void *numbers) {
    enum { LARGEST_ROOT = -3 }; /* all libraries' MPI_PROC_NULL is larger */
    int rank = 0, inter = 0;
    (void)HAN_MPIS(Comm_test_inter, (intptr_t, int *), comm, &inter);
    if (inter) return root <= LARGEST_ROOT ? numbers : NULL;
    return !HAN_MPIS(Comm_rank, (intptr_t, int *), comm, &rank) && rank == root ? numbers : NULL;
}
/* Call MPI's function with ints: `a` and `b` for the counts and displacements of what is sent, `c` and
 * `d` for those of what is received, if the LARGEST count and all of these fit. MPI reads them until a
 * request is complete, of which nobody tells the door: they are kept then. */
#define CALL_SMALL(NAME, WHEN, PARTNERS, TYPES, LARGEST, A, B, C, D, ...)                       \
    ({                                                                                          \
        bool fit = (LARGEST) <= INT_MAX;                                                        \
        const han_blocks all = han_blocks_of(comm, PARTNERS);                                   \
        int *a = narrowed(A, all.out, &fit), *b = narrowed(B, all.out, &fit);                   \
        int *c = narrowed(C, all.in, &fit), *d = narrowed(D, all.in, &fit);                     \
        int small_code = fit ? CALL(NAME, TYPES, __VA_ARGS__) : han_door_fail(comm, ERR_COUNT); \
        if (WHEN == HAN_DOOR_NOW || !fit) free(a), free(b), free(c), free(d);                   \
        (void)a, (void)b, (void)c, (void)d;                                                     \
        small_code;                                                                             \
    })

/* ---- what defines a call ---------------------------------------------------------------------- */

/* Define a call and the one with large counts. P(N, D) are the parameters with counts of type N and
 * displacements of type D, P_TYPES their types; PARTNERS: of whom the blocks are; EXTRA... belong to
 * a request. SMALL are the arguments with ints, NUMBERS what CALL_SMALL needs for them. */
#define BOTH(NAME, WHEN, PARTNERS, P, EXTRA, EXTRA_TYPES, EXTRA_ARGUMENTS, ARGUMENTS, SMALL,       \
             NUMBERS, ...)                                                                         \
    HAN_PUBLIC int MPI_##NAME(P(int, int) EXTRA) {                                                 \
        int code = serve(&(han_door_call){__VA_ARGS__, .when = WHEN,                               \
                                          .neighbours = PARTNERS == HAN_NEIGHBOURS});              \
        return code != HAN_DOOR_LEFT ? code                                                        \
                                     : han_door_left(CALL(NAME, (P##_TYPES(int, int) EXTRA_TYPES), \
                                                          ARGUMENTS EXTRA_ARGUMENTS));             \
    }                                                                                              \
    HAN_PUBLIC int MPI_##NAME##_c(P(int64_t, intptr_t) EXTRA) {                                    \
        static void *large;                                                                        \
        int code = serve(&(han_door_call){                                                         \
            __VA_ARGS__, .when = WHEN, .neighbours = PARTNERS == HAN_NEIGHBOURS, .large = true});  \
        if (code != HAN_DOOR_LEFT) return code;                                                    \
        if (han_has(&large, "PMPI_" #NAME "_c"))                                                   \
            return han_door_left(CALL(NAME##_c, (P##_TYPES(int64_t, intptr_t) EXTRA_TYPES),        \
                                      ARGUMENTS EXTRA_ARGUMENTS));                                 \
        return han_door_left(CALL_SMALL(NAME, WHEN, PARTNERS, (P##_TYPES(int, int) EXTRA_TYPES),   \
                                        NUMBERS, SMALL EXTRA_ARGUMENTS));                          \
    }
/* Define a blocking call, and those that make a request. */
#define THREE(NAME, LATER, STARTED, PARTNERS, P, ARGUMENTS, SMALL, NUMBERS, ...)             \
    BOTH(NAME, HAN_DOOR_NOW, PARTNERS, P, , , , LIST(ARGUMENTS), LIST(SMALL), LIST(NUMBERS), \
         __VA_ARGS__)                                                                        \
    BOTH(LATER, HAN_DOOR_LATER, PARTNERS, P, LIST(, void *request), LIST(, void *),          \
         LIST(, request), LIST(ARGUMENTS), LIST(SMALL), LIST(NUMBERS), __VA_ARGS__,          \
         .request = request)                                                                 \
    BOTH(STARTED, HAN_DOOR_STARTED, PARTNERS, P, LIST(, intptr_t info, void *request),       \
         LIST(, intptr_t, void *), LIST(, info, request), LIST(ARGUMENTS), LIST(SMALL),      \
         LIST(NUMBERS), __VA_ARGS__, .request = request)
#define DEFINE(NAME, LOWER, P, ARGUMENTS, SMALL, NUMBERS, ...)                         \
    THREE(NAME, I##LOWER, NAME##_init, HAN_ALL_RANKS, P, LIST(ARGUMENTS), LIST(SMALL), \
          LIST(NUMBERS), __VA_ARGS__)
#define NO_NUMBERS(LARGEST) LARGEST, NULL, NULL, NULL, NULL

/* A barrier has no counts. */
#define DEFINE_BARRIER(NAME, PARAMETERS, TYPES, ARGUMENTS, ...)                                 \
    HAN_PUBLIC int MPI_##NAME PARAMETERS {                                                      \
        int code =                                                                              \
            serve(&(han_door_call){.collective = HAN_C_BARRIER, .comm = H(comm), __VA_ARGS__}); \
        return code != HAN_DOOR_LEFT ? code : han_door_left(CALL(NAME, TYPES, ARGUMENTS));      \
    }
DEFINE_BARRIER(Barrier, (intptr_t comm), (intptr_t), comm)
DEFINE_BARRIER(Ibarrier, (intptr_t comm, void *request), (intptr_t, void *), LIST(comm, request),
               .when = HAN_DOOR_LATER, .request = request)
DEFINE_BARRIER(Barrier_init, (intptr_t comm, intptr_t info, void *request),
               (intptr_t, intptr_t, void *), LIST(comm, info, request), .when = HAN_DOOR_STARTED,
               .request = request)

/* ---- whole messages -------------------------------------------------------------------------- */

DEFINE(Bcast, bcast, ROOTED, LIST(buf, n, type, root, comm), LIST(buf, (int)n, type, root, comm),
       NO_NUMBERS(n), .collective = HAN_C_BCAST, .recv = SIDE(buf, n, type), .root = root,
       .comm = H(comm))

DEFINE(Reduce, reduce, REDUCED, LIST(send, recv, n, type, op, root, comm),
       LIST(send, recv, (int)n, type, op, root, comm), NO_NUMBERS(n), .collective = HAN_C_REDUCE,
       .send = SIDE(send, n, type), .recv = SIDE(recv, n, type), .op = H(op), .root = root,
       .comm = H(comm))

#define DEFINE_COMBINED(NAME, LOWER, NUMBER)                                              \
    DEFINE(NAME, LOWER, COMBINED, LIST(send, recv, n, type, op, comm),                    \
           LIST(send, recv, (int)n, type, op, comm), NO_NUMBERS(n), .collective = NUMBER, \
           .send = SIDE(send, n, type), .recv = SIDE(recv, n, type), .op = H(op), .comm = H(comm))
DEFINE_COMBINED(Allreduce, allreduce, HAN_C_ALLREDUCE)
DEFINE_COMBINED(Scan, scan, HAN_C_SCAN)
DEFINE_COMBINED(Exscan, exscan, HAN_C_EXSCAN)
DEFINE_COMBINED(Reduce_scatter_block, reduce_scatter_block, HAN_C_REDUCE_SCATTER)

/* ---- equal blocks ---------------------------------------------------------------------------- */

#define LARGER(A, B) ((A) > (B) ? (A) : (B))
#define DEFINE_BLOCKS_ROOTED(NAME, LOWER, NUMBER)                                        \
    DEFINE(NAME, LOWER, BLOCKS_ROOTED,                                                   \
           LIST(send, n_send, send_type, recv, n_recv, recv_type, root, comm),           \
           LIST(send, (int)n_send, send_type, recv, (int)n_recv, recv_type, root, comm), \
           NO_NUMBERS(LARGER(n_send, n_recv)), .collective = NUMBER,                     \
           .send = SIDE(send, n_send, send_type), .recv = SIDE(recv, n_recv, recv_type), \
           .root = root, .comm = H(comm))
DEFINE_BLOCKS_ROOTED(Gather, gather, HAN_C_GATHER)
DEFINE_BLOCKS_ROOTED(Scatter, scatter, HAN_C_SCATTER)

#define DEFINE_BLOCKS(NAME, LOWER, NUMBER)                                                    \
    DEFINE(NAME, LOWER, BLOCKS, LIST(send, n_send, send_type, recv, n_recv, recv_type, comm), \
           LIST(send, (int)n_send, send_type, recv, (int)n_recv, recv_type, comm),            \
           NO_NUMBERS(LARGER(n_send, n_recv)), .collective = NUMBER,                          \
           .send = SIDE(send, n_send, send_type), .recv = SIDE(recv, n_recv, recv_type),      \
           .comm = H(comm))
DEFINE_BLOCKS(Allgather, allgather, HAN_C_ALLGATHER)
DEFINE_BLOCKS(Alltoall, alltoall, HAN_C_ALLTOALL)

/* ---- blocks of their own sizes ---------------------------------------------------------------- */

DEFINE(Gatherv, gatherv, GATHERV,
       LIST(send, n_send, send_type, recv, counts, places, recv_type, root, comm),
       LIST(send, (int)n_send, send_type, recv, a, b, recv_type, root, comm),
       LIST(n_send, of_root(comm, root, counts), of_root(comm, root, places), NULL, NULL),
       .collective = HAN_C_GATHERV, .form = HAN_DOOR_COUNTED, .send = SIDE(send, n_send, send_type),
       .recv = SIDES(recv, counts, places, recv_type), .root = root, .comm = H(comm))

DEFINE(Scatterv, scatterv, SCATTERV,
       LIST(send, counts, places, send_type, recv, n_recv, recv_type, root, comm),
       LIST(send, a, b, send_type, recv, (int)n_recv, recv_type, root, comm),
       LIST(n_recv, of_root(comm, root, counts), of_root(comm, root, places), NULL, NULL),
       .collective = HAN_C_SCATTERV, .form = HAN_DOOR_COUNTED,
       .send = SIDES(send, counts, places, send_type), .recv = SIDE(recv, n_recv, recv_type),
       .root = root, .comm = H(comm))

DEFINE(Allgatherv, allgatherv, ALLGATHERV,
       LIST(send, n_send, send_type, recv, counts, places, recv_type, comm),
       LIST(send, (int)n_send, send_type, recv, a, b, recv_type, comm),
       LIST(n_send, counts, places, NULL, NULL), .collective = HAN_C_ALLGATHER,
       .form = HAN_DOOR_COUNTED, .send = SIDE(send, n_send, send_type),
       .recv = SIDES(recv, counts, places, recv_type), .comm = H(comm))

THREE(Reduce_scatter, Ireduce_scatter, Reduce_scatter_init, HAN_OWN_GROUP, SCATTERED,
      LIST(send, recv, counts, type, op, comm), LIST(send, recv, a, type, op, comm),
      LIST(0, counts, NULL, NULL, NULL), .collective = HAN_C_REDUCE_SCATTER,
      .form = HAN_DOOR_COUNTED, .send = SIDES(send, counts, NULL, type),
      .recv = SIDES(recv, counts, NULL, type), .op = H(op), .comm = H(comm))

DEFINE(Alltoallv, alltoallv, ALLTOALLV,
       LIST(send, n_send, from, send_type, recv, n_recv, to, recv_type, comm),
       LIST(send, a, b, send_type, recv, c, d, recv_type, comm), LIST(0, n_send, from, n_recv, to),
       .collective = HAN_C_ALLTOALLV, .form = HAN_DOOR_COUNTED,
       .send = SIDES(send, n_send, from, send_type), .recv = SIDES(recv, n_recv, to, recv_type),
       .comm = H(comm))

DEFINE(Alltoallw, alltoallw, ALLTOALLW,
       LIST(send, n_send, from, send_types, recv, n_recv, to, recv_types, comm),
       LIST(send, a, b, send_types, recv, c, d, recv_types, comm),
       LIST(0, n_send, from, n_recv, to), .collective = HAN_C_ALLTOALLV, .form = HAN_DOOR_TYPED,
       .send = {.data = send, .counts = n_send, .places = from, .types = send_types},
       .recv = {.data = recv, .counts = n_recv, .places = to, .types = recv_types}, .comm = H(comm))

/* ---- neighbours ------------------------------------------------------------------------------- */

#define DEFINE_NEIGHBOURS(NAME, P, ARGUMENTS, SMALL, NUMBERS, ...)                      \
    THREE(Neighbor_##NAME, Ineighbor_##NAME, Neighbor_##NAME##_init, HAN_NEIGHBOURS, P, \
          LIST(ARGUMENTS), LIST(SMALL), LIST(NUMBERS), __VA_ARGS__)
DEFINE_NEIGHBOURS(allgather, BLOCKS, LIST(send, n_send, send_type, recv, n_recv, recv_type, comm),
                  LIST(send, (int)n_send, send_type, recv, (int)n_recv, recv_type, comm),
                  NO_NUMBERS(LARGER(n_send, n_recv)), .collective = HAN_C_ALLGATHER,
                  .send = SIDE(send, n_send, send_type), .recv = SIDE(recv, n_recv, recv_type),
                  .comm = H(comm))
DEFINE_NEIGHBOURS(alltoall, BLOCKS, LIST(send, n_send, send_type, recv, n_recv, recv_type, comm),
                  LIST(send, (int)n_send, send_type, recv, (int)n_recv, recv_type, comm),
                  NO_NUMBERS(LARGER(n_send, n_recv)), .collective = HAN_C_ALLTOALL,
                  .send = SIDE(send, n_send, send_type), .recv = SIDE(recv, n_recv, recv_type),
                  .comm = H(comm))
DEFINE_NEIGHBOURS(allgatherv, ALLGATHERV,
                  LIST(send, n_send, send_type, recv, counts, places, recv_type, comm),
                  LIST(send, (int)n_send, send_type, recv, c, d, recv_type, comm),
                  LIST(n_send, NULL, NULL, counts, places), .collective = HAN_C_ALLGATHER,
                  .form = HAN_DOOR_COUNTED, .send = SIDE(send, n_send, send_type),
                  .recv = SIDES(recv, counts, places, recv_type), .comm = H(comm))
DEFINE_NEIGHBOURS(alltoallv, ALLTOALLV,
                  LIST(send, n_send, from, send_type, recv, n_recv, to, recv_type, comm),
                  LIST(send, a, b, send_type, recv, c, d, recv_type, comm),
                  LIST(0, n_send, from, n_recv, to), .collective = HAN_C_ALLTOALLV,
                  .form = HAN_DOOR_COUNTED, .send = SIDES(send, n_send, from, send_type),
                  .recv = SIDES(recv, n_recv, to, recv_type), .comm = H(comm))
DEFINE_NEIGHBOURS(alltoallw, ALLTOALLW_FAR,
                  LIST(send, n_send, from, send_types, recv, n_recv, to, recv_types, comm),
                  LIST(send, a, from, send_types, recv, c, to, recv_types, comm),
                  LIST(0, n_send, NULL, n_recv, NULL), .collective = HAN_C_ALLTOALLV,
                  .form = HAN_DOOR_TYPED,
                  .send = {.data = send, .counts = n_send, .places = from, .types = send_types},
                  .recv = {.data = recv, .counts = n_recv, .places = to, .types = recv_types},
                  .comm = H(comm))
