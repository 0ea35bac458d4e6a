/* A program that is linked to Python, and initializes and finalizes it between its collectives. */
#include <mpi.h>
#include <stdio.h>

void Py_Initialize(void);
void Py_Finalize(void);
int Py_IsInitialized(void);
int PyRun_SimpleString(const char *);

static int wrong, rank, size;

static void calls(void) {
    for (int k = 0; k < 20; k++) {
        int found = 0;
        MPI_Allreduce(&rank, &found, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        wrong += found != size - 1;
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    calls();
    for (int turn = 0; turn < 2; turn++) {
        Py_Initialize();
        wrong += !Py_IsInitialized() || PyRun_SimpleString("import sys; assert sys.version");
        calls();
        Py_Finalize();
        calls();
    }
    if (!rank) printf("wrong: %d\n", wrong);
    MPI_Finalize();
    return wrong != 0;
}
