/* Ends in the middle, without MPI_Finalize. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    MPI_Comm self;
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &self);
    for (int k = 0; k < 20; k++) MPI_Barrier(self);
    exit(3);
}
