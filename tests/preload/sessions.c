/* MPI sessions, whose communicators MPI alone serves: in a program without MPI_Init or, with an argument,
 * beside MPI_COMM_WORLD. Prints what is wrong. */
#include <mpi.h>
#include <stdio.h>

static int rank;

static int session(void) {
    MPI_Session session;
    MPI_Group all;
    MPI_Comm comm;
    MPI_Request request;
    int one = 1, sum, size, wrong = 0;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &all);
    MPI_Comm_create_from_group(all, "all", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    for (int k = 0; k < 20; k++) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        wrong += sum != size;
    }
    MPI_Allreduce_init(&one, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    for (int k = 0; k < 5; k++) {
        sum = 0;
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong += sum != size;
    }
    MPI_Request_free(&request);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    MPI_Group_free(&all);
    MPI_Session_finalize(&session);
    return wrong;
}

static int world(void) {
    int size, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int k = 0; k < 20; k++) {
        int mine = rank + k, sum;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        wrong += sum != size * k + size * (size - 1) / 2;
    }
    return wrong;
}

int main(int argc, char **argv) {
    const int beside = argc > 1;
    if (beside) MPI_Init(&argc, &argv);
    const int wrong = beside ? world() + session() + world() : session();
    if (!rank) printf("wrong: %d\n", wrong);
    if (beside) MPI_Finalize();
    return wrong != 0;
}
