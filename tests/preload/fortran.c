/* Calls MPI as a Fortran program does: by Fortran's names, with addresses of numbers. */
#include <mpi.h>
#include <stdio.h>

void mpi_allreduce_(void *, void *, int *, int *, int *, int *, int *);
void mpi_bcast_(void *, int *, int *, int *, int *, int *);
void mpi_reduce_(void *, void *, int *, int *, int *, int *, int *, int *);
void mpi_barrier_(int *, int *);
void mpi_allgather_(void *, int *, int *, void *, int *, int *, int *, int *);
void mpi_comm_free_(int *, int *);
void mpi_iallreduce_(void *, void *, int *, int *, int *, int *, int *, int *);
void mpi_bcast_init_(void *, int *, int *, int *, int *, int *, int *, int *);
void mpi_ialltoallw_(void *, int *, int *, int *, void *, int *, int *, int *, int *, int *, int *);
void mpi_start_(int *, int *);
void mpi_barrier_f08_(int *, int *);
void mpi_comm_free_f08_(int *, int *);
void mpi_alltoallv_(void *, int *, int *, int *, void *, int *, int *, int *, int *, int *);
void mpi_alltoallw_(void *, int *, int *, int *, void *, int *, int *, int *, int *, int *);
void mpi_neighbor_allgather_(void *, int *, int *, void *, int *, int *, int *, int *);
void mpi_neighbor_alltoallw_(void *, int *, MPI_Aint *, int *, void *, int *, MPI_Aint *, int *,
                             int *, int *);
void mpi_ineighbor_alltoallv_(void *, int *, int *, int *, void *, int *, int *, int *, int *,
                              int *, int *);
int mpi_fortran_in_place_, mpi_fortran_bottom_; /* common memory of Open MPI's Fortran library */

/* Exchange with both neighbours of a ring; returns how many numbers are wrong. */
static int neighbours(int rank, int size) {
    MPI_Comm ring;
    MPI_Request started;
    int periodic = 1, wrong = 0, code, request, one = 1, all[2], ones[] = {1, 1};
    int places[] = {0, 1}, type = MPI_Type_c2f(MPI_INT), types[] = {type, type};
    MPI_Aint bytes[] = {0, sizeof(int)};
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    int comm = MPI_Comm_c2f(ring), sent[] = {10 * rank, 10 * rank + 1};
    for (int k = 0; k < 12; k++) {
        mpi_neighbor_allgather_(&rank, &one, &type, all, &one, &type, &comm, &code);
        wrong += code || all[0] != left || all[1] != right;
        all[0] = all[1] = -1;
        mpi_neighbor_alltoallw_(sent, ones, bytes, types, all, ones, bytes, types, &comm, &code);
        wrong += code || all[0] != 10 * left + 1 || all[1] != 10 * right;
        all[0] = all[1] = -1;
        mpi_ineighbor_alltoallv_(sent, ones, places, &type, all, ones, places, &type, &comm,
                                 &request, &code);
        started = MPI_Request_f2c(request);
        wrong += code || MPI_Wait(&started, MPI_STATUS_IGNORE);
        wrong += all[0] != 10 * left + 1 || all[1] != 10 * right;
    }
    mpi_comm_free_(&comm, &code);
    return wrong + code;
}

int main(int argc, char **argv) {
    int rank, size, wrong = 0, code, one = 1, root = 0, all[64];
    MPI_Comm own;
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    MPI_Comm_rank(own, &rank);
    MPI_Comm_size(own, &size);
    int ones[64], places[64], bytes[64], types[64], sent[64];
    for (int r = 0; r < size; r++) {
        ones[r] = 1;
        places[r] = r;
        bytes[r] = r * (int)sizeof(int);
        types[r] = MPI_Type_c2f(MPI_INT);
        sent[r] = 10 * rank + r;
    }
    int comm = MPI_Comm_c2f(own), type = MPI_Type_c2f(MPI_INT), op = MPI_Op_c2f(MPI_SUM);
    for (int k = 0; k < 30; k++) {
        int mine = rank + k, found = -1, total = size * (size - 1) / 2 + size * k;
        mpi_allreduce_(&mine, &found, &one, &type, &op, &comm, &code);
        wrong += code || found != total;
        found = mine;
        mpi_allreduce_(&mpi_fortran_in_place_, &found, &one, &type, &op, &comm, &code);
        wrong += code || found != total;
        mpi_reduce_(&mine, &found, &one, &type, &op, &root, &comm, &code);
        wrong += code || (!rank && found != total);
        mpi_bcast_(&mine, &one, &type, &root, &comm, &code);
        wrong += code || mine != k;
        mpi_allgather_(&rank, &one, &type, all, &one, &type, &comm, &code);
        for (int r = 0; r < size; r++) wrong += all[r] != r;
        mpi_alltoallv_(sent, ones, places, &type, all, ones, places, &type, &comm, &code);
        for (int r = 0; r < size; r++) wrong += all[r] != 10 * r + rank;
        mpi_alltoallw_(&mpi_fortran_in_place_, NULL, NULL, NULL, all, ones, bytes, types, &comm,
                       &code);
        for (int r = 0; r < size; r++) wrong += all[r] != sent[r];
        int request, info = MPI_Info_c2f(MPI_INFO_NULL);
        mpi_iallreduce_(&rank, &found, &one, &type, &op, &comm, &request, &code);
        MPI_Request started = MPI_Request_f2c(request);
        wrong += code || MPI_Wait(&started, MPI_STATUS_IGNORE) || found != total - size * k;
        mpi_ialltoallw_(sent, ones, bytes, types, all, ones, bytes, types, &comm, &request, &code);
        started = MPI_Request_f2c(request);
        wrong += code || MPI_Wait(&started, MPI_STATUS_IGNORE);
        for (int r = 0; r < size; r++) wrong += all[r] != 10 * r + rank;
        mpi_bcast_init_(&mine, &one, &type, &root, &comm, &info, &request, &code);
        MPI_Request again = MPI_Request_f2c(request);
        for (int turn = 0; turn < 3; turn++) {
            mine = rank + turn;
            mpi_start_(&request, &code);
            wrong += code || MPI_Wait(&again, MPI_STATUS_IGNORE) || mine != turn;
        }
        MPI_Request_free(&again);
        mpi_barrier_(&comm, &code);
        mpi_barrier_f08_(&comm, NULL);
    }
    wrong += neighbours(rank, size);
    mpi_comm_free_f08_(&comm, &code);
    wrong += code || comm != MPI_Comm_c2f(MPI_COMM_NULL);
    MPI_Reduce(rank ? &wrong : MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank) printf("wrong: %d\n", wrong);
    MPI_Finalize();
    return 0;
}
