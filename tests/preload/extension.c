/* A library that calls MPI, as extension modules of Python do. Communicators come as addresses of
 * handles. */
#include <mpi.h>
#include <stdlib.h>

/* Make calls with known results; return how many are wrong. */
int calls(const MPI_Comm *comm, int n) {
    int rank, size, wrong = 0;
    MPI_Comm_rank(*comm, &rank);
    MPI_Comm_size(*comm, &size);
    double *one = malloc(sizeof *one * n), *all = malloc(sizeof *all * n * size);
    for (int k = 0; k < n; k++) one[k] = rank + k;
    MPI_Allreduce(one, all, n, MPI_DOUBLE, MPI_SUM, *comm);
    for (int k = 0; k < n; k++) wrong += all[k] != size * (size - 1) / 2 + size * k;
    MPI_Allgather(one, n, MPI_DOUBLE, all, n, MPI_DOUBLE, *comm);
    for (int k = 0; k < n * size; k++) wrong += all[k] != k / n + k % n;
    MPI_Bcast(one, n, MPI_DOUBLE, size - 1, *comm);
    for (int k = 0; k < n; k++) wrong += one[k] != size - 1 + k;
    wrong += MPI_Barrier(*comm) != MPI_SUCCESS;
    free(one);
    free(all);
    return wrong;
}

/* Reduce a number of each rank with an operation. */
int reduced(const MPI_Comm *comm, const MPI_Op *op, int number) {
    int result = -1;
    MPI_Allreduce(&number, &result, 1, MPI_INT, *op, *comm);
    return result;
}

int release(MPI_Comm *comm) { return MPI_Comm_free(comm); }

/* What a library's own finalizer does after Python's end. */
static MPI_Comm last;
void keep(const MPI_Comm *comm) { MPI_Comm_dup(*comm, &last); }
void finish(void) {
    int wrong = 0;
    for (int k = 0; k < 20; k++) wrong += calls(&last, 8);
    wrong += MPI_Comm_free(&last) != MPI_SUCCESS;
    if (wrong) abort();
}
