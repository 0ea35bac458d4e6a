/* The MPI library, found at run time: han's core is built without mpi.h, once for every ABI. */
#ifndef HAN_MPI_TABLE_H
#define HAN_MPI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A handle as han carries it: an int (sign-extended) or a pointer, see han_mpi.wide. */
typedef intptr_t han_handle;

enum han_mpi_fn {
    HAN_F_ISEND,
    HAN_F_IRECV,
    HAN_F_TEST,
    HAN_F_IPROBE,
    HAN_F_CANCEL,
    HAN_F_FINALIZED,
    HAN_F_IBCAST,
    HAN_F_IREDUCE,
    HAN_F_IALLREDUCE,
    HAN_F_IBARRIER,
    HAN_F_BCAST,
    HAN_F_REDUCE,
    HAN_F_ALLREDUCE,
    HAN_F_BARRIER,
    HAN_F_REDUCE_LOCAL,
    HAN_F_COUNT
};

typedef void (*han_anyfn)(void);

typedef struct {
    int wide; /* handles are pointers (Open MPI, the MPI-5 ABI), else int (MPICH, Intel MPI) */
    int any_source, notice_tag;
    void *in_place;
    han_handle byte;
    han_anyfn fn[HAN_F_COUNT];
} han_mpi;

typedef struct {
    const void *send;
    void *recv;
    int count, root;
    han_handle dtype, op, comm;
} han_coll_args;

/* Look every function up: first what is already global (it honours preloaded profilers), then
 * in `library`. Returns NULL, or the name of the function that was not found. */
const char *han_mpi_load(han_mpi *mpi, const char *library);

/* Each returns the MPI error code. A request is 8 bytes wide whatever the handle's size. */
int han_isend(const han_mpi *, const void *, int n, int peer, int tag, han_handle comm,
              uint64_t *req);
int han_irecv(const han_mpi *, void *, int n, int peer, int tag, han_handle comm, uint64_t *req);
int han_test(const han_mpi *, uint64_t *req, int *flag);
int han_cancel(const han_mpi *, uint64_t *req); /* to be tested until it is over */
bool han_mpi_finalized(const han_mpi *);
int han_iprobe(const han_mpi *, int source, int tag, han_handle comm, int *flag);
int han_collective(const han_mpi *, unsigned kind, const han_coll_args *, uint64_t *req);
int han_reduce_local(const han_mpi *, const void *in, void *inout, int n, han_handle dtype,
                     han_handle op);

#endif
