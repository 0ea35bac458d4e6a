/* Ranks that a program spawns, without the library maybe: MPI alone serves the communicators that both
 * worlds share. Prints what is wrong. */
#include <mpi.h>
#include <stdio.h>

static int wrong;

static void sum(MPI_Comm comm) {
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int k = 0; k < 20; k++) {
        int mine = rank + k, all = -1;
        MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm);
        wrong += all != size * (size - 1) / 2 + size * k;
    }
}

int main(int argc, char **argv) {
    MPI_Comm parent, inter, both;
    int rank, all;
    MPI_Init(&argc, &argv);
    sum(MPI_COMM_WORLD);
    MPI_Comm_get_parent(&parent);
    const int spawned = parent != MPI_COMM_NULL;
    inter = parent;
    if (!spawned)
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                       MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(inter, spawned, &both);
    sum(both);
    sum(MPI_COMM_WORLD);
    MPI_Comm_rank(both, &rank);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, both);
    if (!rank) printf("wrong: %d\n", all);
    MPI_Comm_free(&both);
    MPI_Comm_disconnect(&inter);
    MPI_Finalize();
    return all != 0;
}
