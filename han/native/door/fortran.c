/* MPI's collectives, as Fortran programs call them (mpif.h, and the modules mpi and mpi_f08). MPICH's
 * own functions call those of C, so they are called here. Those of Open MPI do not, so their
 * work is done here: handles are numbers, and names in common memory stand for MPI_IN_PLACE and
 * MPI_BOTTOM. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include "door/inside.h"

int MPI_Barrier(intptr_t);
int MPI_Bcast(void *, int, intptr_t, int, intptr_t);
int MPI_Reduce(const void *, void *, int, intptr_t, intptr_t, int, intptr_t);
int MPI_Allreduce(const void *, void *, int, intptr_t, intptr_t, intptr_t);
int MPI_Scan(const void *, void *, int, intptr_t, intptr_t, intptr_t);
int MPI_Exscan(const void *, void *, int, intptr_t, intptr_t, intptr_t);
int MPI_Reduce_scatter_block(const void *, void *, int, intptr_t, intptr_t, intptr_t);
int MPI_Gather(const void *, int, intptr_t, void *, int, intptr_t, int, intptr_t);
int MPI_Scatter(const void *, int, intptr_t, void *, int, intptr_t, int, intptr_t);
int MPI_Allgather(const void *, int, intptr_t, void *, int, intptr_t, intptr_t);
int MPI_Alltoall(const void *, int, intptr_t, void *, int, intptr_t, intptr_t);
int MPI_Gatherv(const void *, int, intptr_t, void *, const int *, const int *, intptr_t, int,
                intptr_t);
int MPI_Scatterv(const void *, const int *, const int *, intptr_t, void *, int, intptr_t, int,
                 intptr_t);
int MPI_Allgatherv(const void *, int, intptr_t, void *, const int *, const int *, intptr_t,
                   intptr_t);
int MPI_Alltoallv(const void *, const int *, const int *, intptr_t, void *, const int *,
                  const int *, intptr_t, intptr_t);
int MPI_Alltoallw(const void *, const int *, const int *, const void *, void *, const int *,
                  const int *, const void *, intptr_t);
int MPI_Reduce_scatter(const void *, void *, const int *, intptr_t, intptr_t, intptr_t);
int MPI_Comm_free(intptr_t *);
int MPI_Comm_disconnect(intptr_t *);
int MPI_Op_free(intptr_t *);
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

static void *next(void **known, const char *name) {
    if (!*known) *known = dlsym(RTLD_NEXT, name);
    return *known;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Define a call by the code of C's, and by the names that Open MPI's modules use. */
#define DEFINE(NAME, PARAMETERS, ARGUMENTS, ...)                          \
    HAN_PUBLIC void mpi_##NAME##_ PARAMETERS {                            \
        static void *known;                                               \
        void *mpich = han_wide() ? NULL : next(&known, "mpi_" #NAME "_"); \
        if (mpich)                                                        \
            ((void(*) PARAMETERS)mpich) ARGUMENTS;                        \
        else                                                              \
            *code = (__VA_ARGS__);                                        \
    }                                                                     \
    HAN_PUBLIC void ompi_##NAME##_f PARAMETERS { mpi_##NAME##_ ARGUMENTS; }

DEFINE(barrier, (int *comm, int *code), (comm, code), MPI_Barrier(comm_of(comm)))
DEFINE(bcast, (void *buf, int *n, int *type, int *root, int *comm, int *code),
       (buf, n, type, root, comm, code),
       MPI_Bcast(buffer(buf), *n, type_of(type), *root, comm_of(comm)))
DEFINE(reduce,
       (void *send, void *recv, int *n, int *type, int *op, int *root, int *comm, int *code),
       (send, recv, n, type, op, root, comm, code),
       MPI_Reduce(buffer(send), buffer(recv), *n, type_of(type), op_of(op), *root, comm_of(comm)))

#define DEFINE_COMBINED(NAME, C)                                                             \
    DEFINE(NAME, (void *send, void *recv, int *n, int *type, int *op, int *comm, int *code), \
           (send, recv, n, type, op, comm, code),                                            \
           C(buffer(send), buffer(recv), *n, type_of(type), op_of(op), comm_of(comm)))
DEFINE_COMBINED(allreduce, MPI_Allreduce)
DEFINE_COMBINED(scan, MPI_Scan)
DEFINE_COMBINED(exscan, MPI_Exscan)
DEFINE_COMBINED(reduce_scatter_block, MPI_Reduce_scatter_block)

#define DEFINE_ROOTED(NAME, C)                                                                     \
    DEFINE(NAME,                                                                                   \
           (void *send, int *n_send, int *send_type, void *recv, int *n_recv, int *recv_type,      \
            int *root, int *comm, int *code),                                                      \
           (send, n_send, send_type, recv, n_recv, recv_type, root, comm, code),                   \
           C(buffer(send), *n_send, type_of(send_type), buffer(recv), *n_recv, type_of(recv_type), \
             *root, comm_of(comm)))
DEFINE_ROOTED(gather, MPI_Gather)
DEFINE_ROOTED(scatter, MPI_Scatter)

#define DEFINE_BLOCKS(NAME, C)                                                                     \
    DEFINE(NAME,                                                                                   \
           (void *send, int *n_send, int *send_type, void *recv, int *n_recv, int *recv_type,      \
            int *comm, int *code),                                                                 \
           (send, n_send, send_type, recv, n_recv, recv_type, comm, code),                         \
           C(buffer(send), *n_send, type_of(send_type), buffer(recv), *n_recv, type_of(recv_type), \
             comm_of(comm)))
DEFINE_BLOCKS(allgather, MPI_Allgather)
DEFINE_BLOCKS(alltoall, MPI_Alltoall)

DEFINE(reduce_scatter,
       (void *send, void *recv, int *counts, int *type, int *op, int *comm, int *code),
       (send, recv, counts, type, op, comm, code),
       MPI_Reduce_scatter(buffer(send), buffer(recv), counts, type_of(type), op_of(op),
                          comm_of(comm)))
DEFINE(gatherv,
       (void *send, int *n_send, int *send_type, void *recv, int *counts, int *places,
        int *recv_type, int *root, int *comm, int *code),
       (send, n_send, send_type, recv, counts, places, recv_type, root, comm, code),
       MPI_Gatherv(buffer(send), *n_send, type_of(send_type), buffer(recv), counts, places,
                   type_of(recv_type), *root, comm_of(comm)))
DEFINE(scatterv,
       (void *send, int *counts, int *places, int *send_type, void *recv, int *n_recv,
        int *recv_type, int *root, int *comm, int *code),
       (send, counts, places, send_type, recv, n_recv, recv_type, root, comm, code),
       MPI_Scatterv(buffer(send), counts, places, type_of(send_type), buffer(recv), *n_recv,
                    type_of(recv_type), *root, comm_of(comm)))
DEFINE(allgatherv,
       (void *send, int *n_send, int *send_type, void *recv, int *counts, int *places,
        int *recv_type, int *comm, int *code),
       (send, n_send, send_type, recv, counts, places, recv_type, comm, code),
       MPI_Allgatherv(buffer(send), *n_send, type_of(send_type), buffer(recv), counts, places,
                      type_of(recv_type), comm_of(comm)))
DEFINE(alltoallv,
       (void *send, int *n_send, int *from, int *send_type, void *recv, int *n_recv, int *to,
        int *recv_type, int *comm, int *code),
       (send, n_send, from, send_type, recv, n_recv, to, recv_type, comm, code),
       MPI_Alltoallv(buffer(send), n_send, from, type_of(send_type), buffer(recv), n_recv, to,
                     type_of(recv_type), comm_of(comm)))

/* Types of all ranks, in memory that the caller frees. */
static intptr_t *types_of(const int *types, intptr_t comm) {
    int size = 0;
    (void)HAN_MPIS(Comm_size, (intptr_t, int *), comm, &size);
    intptr_t *found = calloc((size_t)size + 1, sizeof *found);
    for (int r = 0; found && r < size; r++) found[r] = type_of(&types[r]);
    return found;
}
static int alltoallw(void *send, int *n_send, int *from, int *send_types, void *recv, int *n_recv,
                     int *to, int *recv_types, int *comm) {
    const bool there = is(&in_place, send); /* then nothing else is said of what is sent */
    intptr_t *sent = there ? NULL : types_of(send_types, comm_of(comm));
    intptr_t *taken = types_of(recv_types, comm_of(comm));
    int code = MPI_Alltoallw(buffer(send), n_send, from, sent, buffer(recv), n_recv, to, taken,
                             comm_of(comm));
    free(sent);
    free(taken);
    return code;
}
DEFINE(alltoallw,
       (void *send, int *n_send, int *from, int *send_types, void *recv, int *n_recv, int *to,
        int *recv_types, int *comm, int *code),
       (send, n_send, from, send_types, recv, n_recv, to, recv_types, comm, code),
       alltoallw(send, n_send, from, send_types, recv, n_recv, to, recv_types, comm))

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

DEFINE(comm_free, (int *comm, int *code), (comm, code), comm_end(MPI_Comm_free, comm))
DEFINE(comm_disconnect, (int *comm, int *code), (comm, code), comm_end(MPI_Comm_disconnect, comm))
DEFINE(op_free, (int *op, int *code), (op, code), op_end(op))
DEFINE(finalize, (int *code), (code), MPI_Finalize())
