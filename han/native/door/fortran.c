/* MPI's collectives, as Fortran programs call them (mpif.h, and the modules mpi and mpi_f08). MPICH's
 * own functions call those of C, so they are called here. Those of Open MPI do not, so their
 * work is done here: handles are numbers, and names in common memory stand for MPI_IN_PLACE and
 * MPI_BOTTOM. */
#include <stddef.h>
#include <stdlib.h>

#include "door/blocks.h"
#include "door/collectives.h"
#include "door/library.h"
#include "door/parameters.h"

#define DECLARE(NAME, LOWER, P)                           \
    int MPI_##NAME(P##_TYPES(int, int));                  \
    int MPI_I##LOWER(P##_TYPES(int, int), void *request); \
    int MPI_##NAME##_init(P##_TYPES(int, int), intptr_t info, void *request);
HAN_DOOR_COLLECTIVES(DECLARE)
int MPI_Barrier(intptr_t);
int MPI_Ibarrier(intptr_t, void *request);
int MPI_Barrier_init(intptr_t, intptr_t info, void *request);
int MPI_Comm_free(intptr_t *);
int MPI_Comm_disconnect(intptr_t *);
int MPI_Op_free(void *);
int MPI_Finalize(void);

/* ---- what Fortran passes -------------------------------------------------------------------- */

enum { SPELLINGS = 4 };
typedef struct {
    const char *name[SPELLINGS]; /* as compilers spell it */
    const void *at[SPELLINGS];
    bool known;
} common_name;

static common_name in_place = {.name = {"mpi_fortran_in_place_", "mpi_fortran_in_place__",
                                        "mpi_fortran_in_place", "MPI_FORTRAN_IN_PLACE"}};
static common_name bottom = {.name = {"mpi_fortran_bottom_", "mpi_fortran_bottom__",
                                      "mpi_fortran_bottom", "MPI_FORTRAN_BOTTOM"}};

/* The library that has the name may be loaded after the first call. */
static bool is(common_name *what, const void *given) {
    bool found = false;
    for (int k = 0; k < SPELLINGS; k++) {
        if (!what->known) what->at[k] = han_find(what->name[k]);
        what->known |=
            k == SPELLINGS - 1 && (what->at[0] || what->at[1] || what->at[2] || what->at[3]);
        found |= what->at[k] && what->at[k] == given;
    }
    return found;
}

/* A buffer as C takes it; Open MPI's MPI_IN_PLACE is 1, and MPI_BOTTOM 0. */
static void *buffer(void *given) {
    if (is(&in_place, given)) return (void *)1;
    return is(&bottom, given) ? NULL : given;
}

static intptr_t comm_of(const int *f) { return HAN_MPIS_OF(intptr_t, Comm_f2c, (int), *f); }
static intptr_t type_of(const int *f) { return HAN_MPIS_OF(intptr_t, Type_f2c, (int), *f); }
static intptr_t op_of(const int *f) { return HAN_MPIS_OF(intptr_t, Op_f2c, (int), *f); }

/* ---- calls ---------------------------------------------------------------------------------- */

/* Define a function, by the names that Fortran and Open MPI's modules use. Its work is `*code`'s
 * expression; MPICH's own function calls that of C. */
#define FUNCTION(NAME, PARAMETERS, ARGUMENTS, ...)                            \
    HAN_PUBLIC void mpi_##NAME##_(PARAMETERS, int *code) {                    \
        static void *known;                                                   \
        void *mpich = han_wide() ? NULL : han_next(&known, "mpi_" #NAME "_"); \
        if (mpich)                                                            \
            ((void (*)(PARAMETERS, int *))mpich)(ARGUMENTS, code);            \
        else                                                                  \
            *code = (__VA_ARGS__);                                            \
    }                                                                         \
    HAN_PUBLIC void ompi_##NAME##_f(PARAMETERS, int *code) { mpi_##NAME##_(ARGUMENTS, code); }

/* The code of a call that makes a request, whose handle it tells. */
#define REQUEST(CALL)                                                                  \
    ({                                                                                 \
        intptr_t made = 0;                                                             \
        int request_code = CALL;                                                       \
        if (!request_code) *request = HAN_MPIS_OF(int, Request_c2f, (intptr_t), made); \
        request_code;                                                                  \
    })

#define LIST(...) __VA_ARGS__
/* Define a collective: blocking, nonblocking and persistent. */
#define DEFINE(NAME, C, PARAMETERS, ARGUMENTS, ...)                                             \
    FUNCTION(NAME, LIST(PARAMETERS), LIST(ARGUMENTS), MPI_##C(__VA_ARGS__))                     \
    FUNCTION(i##NAME, LIST(PARAMETERS, int *request), LIST(ARGUMENTS, request),                 \
             REQUEST(MPI_I##NAME(__VA_ARGS__, &made)))                                          \
    FUNCTION(NAME##_init, LIST(PARAMETERS, int *info, int *request),                            \
             LIST(ARGUMENTS, info, request),                                                    \
             REQUEST(MPI_##C##_init(__VA_ARGS__, HAN_MPIS_OF(intptr_t, Info_f2c, (int), *info), \
                                    &made)))

DEFINE(barrier, Barrier, LIST(int *comm), comm, comm_of(comm))
DEFINE(bcast, Bcast, LIST(void *buf, int *n, int *type, int *root, int *comm),
       LIST(buf, n, type, root, comm), buffer(buf), *n, type_of(type), *root, comm_of(comm))
DEFINE(reduce, Reduce,
       LIST(void *send, void *recv, int *n, int *type, int *op, int *root, int *comm),
       LIST(send, recv, n, type, op, root, comm), buffer(send), buffer(recv), *n, type_of(type),
       op_of(op), *root, comm_of(comm))

#define DEFINE_COMBINED(NAME, C)                                                               \
    DEFINE(NAME, C, LIST(void *send, void *recv, int *n, int *type, int *op, int *comm),       \
           LIST(send, recv, n, type, op, comm), buffer(send), buffer(recv), *n, type_of(type), \
           op_of(op), comm_of(comm))
DEFINE_COMBINED(allreduce, Allreduce)
DEFINE_COMBINED(scan, Scan)
DEFINE_COMBINED(exscan, Exscan)
DEFINE_COMBINED(reduce_scatter_block, Reduce_scatter_block)

#define DEFINE_ROOTED(NAME, C)                                                                    \
    DEFINE(NAME, C,                                                                               \
           LIST(void *send, int *n_send, int *send_type, void *recv, int *n_recv, int *recv_type, \
                int *root, int *comm),                                                            \
           LIST(send, n_send, send_type, recv, n_recv, recv_type, root, comm), buffer(send),      \
           *n_send, type_of(send_type), buffer(recv), *n_recv, type_of(recv_type), *root,         \
           comm_of(comm))
DEFINE_ROOTED(gather, Gather)
DEFINE_ROOTED(scatter, Scatter)

#define DEFINE_BLOCKS(NAME, C)                                                                    \
    DEFINE(NAME, C,                                                                               \
           LIST(void *send, int *n_send, int *send_type, void *recv, int *n_recv, int *recv_type, \
                int *comm),                                                                       \
           LIST(send, n_send, send_type, recv, n_recv, recv_type, comm), buffer(send), *n_send,   \
           type_of(send_type), buffer(recv), *n_recv, type_of(recv_type), comm_of(comm))
DEFINE_BLOCKS(allgather, Allgather)
DEFINE_BLOCKS(alltoall, Alltoall)
DEFINE_BLOCKS(neighbor_allgather, Neighbor_allgather)
DEFINE_BLOCKS(neighbor_alltoall, Neighbor_alltoall)

DEFINE(reduce_scatter, Reduce_scatter,
       LIST(void *send, void *recv, int *counts, int *type, int *op, int *comm),
       LIST(send, recv, counts, type, op, comm), buffer(send), buffer(recv), counts, type_of(type),
       op_of(op), comm_of(comm))
DEFINE(gatherv, Gatherv,
       LIST(void *send, int *n_send, int *send_type, void *recv, int *counts, int *places,
            int *recv_type, int *root, int *comm),
       LIST(send, n_send, send_type, recv, counts, places, recv_type, root, comm), buffer(send),
       *n_send, type_of(send_type), buffer(recv), counts, places, type_of(recv_type), *root,
       comm_of(comm))
DEFINE(scatterv, Scatterv,
       LIST(void *send, int *counts, int *places, int *send_type, void *recv, int *n_recv,
            int *recv_type, int *root, int *comm),
       LIST(send, counts, places, send_type, recv, n_recv, recv_type, root, comm), buffer(send),
       counts, places, type_of(send_type), buffer(recv), *n_recv, type_of(recv_type), *root,
       comm_of(comm))
#define DEFINE_ALLGATHERV(NAME, C)                                                             \
    DEFINE(NAME, C,                                                                            \
           LIST(void *send, int *n_send, int *send_type, void *recv, int *counts, int *places, \
                int *recv_type, int *comm),                                                    \
           LIST(send, n_send, send_type, recv, counts, places, recv_type, comm), buffer(send), \
           *n_send, type_of(send_type), buffer(recv), counts, places, type_of(recv_type),      \
           comm_of(comm))
DEFINE_ALLGATHERV(allgatherv, Allgatherv)
DEFINE_ALLGATHERV(neighbor_allgatherv, Neighbor_allgatherv)
#define DEFINE_ALLTOALLV(NAME, C)                                                                \
    DEFINE(NAME, C,                                                                              \
           LIST(void *send, int *n_send, int *from, int *send_type, void *recv, int *n_recv,     \
                int *to, int *recv_type, int *comm),                                             \
           LIST(send, n_send, from, send_type, recv, n_recv, to, recv_type, comm), buffer(send), \
           n_send, from, type_of(send_type), buffer(recv), n_recv, to, type_of(recv_type),       \
           comm_of(comm))
DEFINE_ALLTOALLV(alltoallv, Alltoallv)
DEFINE_ALLTOALLV(neighbor_alltoallv, Neighbor_alltoallv)

/* Types of blocks, in memory that the caller frees. */
static intptr_t *types_of(const int *types, int n) {
    intptr_t *found = calloc((size_t)n + 1, sizeof *found);
    for (int k = 0; found && k < n; k++) found[k] = type_of(&types[k]);
    return found;
}
/* The code of a call with types. With MPI_IN_PLACE nothing else is said of what is sent. MPI may read
 * the types until a request is complete, of which nobody tells the door: they are KEPT then. han has read
 * them. */
#define TYPED(KEPT, PARTNERS, CALL)                                                  \
    ({                                                                               \
        const han_blocks all = han_blocks_of(comm_of(comm), PARTNERS);               \
        intptr_t *sent = is(&in_place, send) ? NULL : types_of(send_types, all.out); \
        intptr_t *taken = types_of(recv_types, all.in);                              \
        int typed_code = CALL;                                                       \
        if (!KEPT || han_door_served()) free(sent), free(taken);                     \
        typed_code;                                                                  \
    })
/* PLACE: the type of places. */
#define DEFINE_TYPED(NAME, C, PLACE, PARTNERS)                                                   \
    FUNCTION(NAME, W_PARAMETERS(PLACE), LIST(W_ARGUMENTS),                                       \
             TYPED(false, PARTNERS, MPI_##C(W_OF_C)))                                            \
    FUNCTION(i##NAME, LIST(W_PARAMETERS(PLACE), int *request), LIST(W_ARGUMENTS, request),       \
             TYPED(true, PARTNERS, REQUEST(MPI_I##NAME(W_OF_C, &made))))                         \
    FUNCTION(NAME##_init, LIST(W_PARAMETERS(PLACE), int *info, int *request),                    \
             LIST(W_ARGUMENTS, info, request),                                                   \
             TYPED(true, PARTNERS,                                                               \
                   REQUEST(MPI_##C##_init(W_OF_C, HAN_MPIS_OF(intptr_t, Info_f2c, (int), *info), \
                                          &made))))
#define W_PARAMETERS(PLACE)                                                              \
    LIST(void *send, int *n_send, PLACE *from, int *send_types, void *recv, int *n_recv, \
         PLACE *to, int *recv_types, int *comm)
#define W_ARGUMENTS send, n_send, from, send_types, recv, n_recv, to, recv_types, comm
#define W_OF_C buffer(send), n_send, from, sent, buffer(recv), n_recv, to, taken, comm_of(comm)
DEFINE_TYPED(alltoallw, Alltoallw, int, HAN_ALL_RANKS)
DEFINE_TYPED(neighbor_alltoallw, Neighbor_alltoallw, intptr_t, HAN_NEIGHBOURS)

/* ---- ends ----------------------------------------------------------------------------------- */

/* The handle is null afterwards. */
static int comm_end(int (*end)(intptr_t *), int *fortran) {
    intptr_t comm = comm_of(fortran);
    int code = end(&comm);
    if (!code) *fortran = HAN_MPIS(Comm_c2f, (intptr_t), comm);
    return code;
}
static int op_end(int *fortran) {
    intptr_t op = op_of(fortran);
    int code = MPI_Op_free(&op);
    if (!code) *fortran = HAN_MPIS(Op_c2f, (intptr_t), op);
    return code;
}

FUNCTION(comm_free, int *comm, comm, comm_end(MPI_Comm_free, comm))
FUNCTION(comm_disconnect, int *comm, comm, comm_end(MPI_Comm_disconnect, comm))
FUNCTION(op_free, int *op, op, op_end(op))

HAN_PUBLIC void mpi_finalize_(int *code) {
    static void *known;
    void *mpich = han_wide() ? NULL : han_next(&known, "mpi_finalize_");
    if (mpich)
        ((void (*)(int *))mpich)(code);
    else
        *code = MPI_Finalize();
}
HAN_PUBLIC void ompi_finalize_f(int *code) { mpi_finalize_(code); }

/* MPICH's module mpi_f08 calls these without their names of C. `code` may be missing, thus NULL. */
#define DEFINE_F08(NAME)                                        \
    HAN_PUBLIC void mpi_##NAME##_f08_(int *handle, int *code) { \
        int found = 0;                                          \
        mpi_##NAME##_(handle, &found);                          \
        if (code) *code = found;                                \
    }
DEFINE_F08(barrier)
DEFINE_F08(comm_free)
DEFINE_F08(comm_disconnect)
DEFINE_F08(op_free)

HAN_PUBLIC void mpi_finalize_f08_(int *code) {
    int found = 0;
    mpi_finalize_(&found);
    if (code) *code = found;
}
