/* Times of collectives from C: MPI's public names, which han serves under `han run`, and the MPI library's
 * own functions behind them, in turns.
 *
 *     mpiexec -n 2 han run ./bench ROUNDS SECONDS COLLECTIVE... -- BYTES...
 *
 * Rank 0 prints a line for each call: collective, bytes, and for both the least, the median and the most
 * microseconds of the rounds, each the mean of a batch of calls on the slowest rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 101, MOST_CALLS = 10000 };

static char *sent, *received;
static int rank, size, *counts, *places;

typedef void call_fn(int n);

/* A call by its public name, and by MPI's own. `n`: bytes of a message, or of a block. */
#define CALL(NAME, FUNCTION, ...)                                      \
    static void NAME##_public(int n) { (void)n, MPI_##FUNCTION(__VA_ARGS__); } \
    static void NAME##_own(int n) { (void)n, PMPI_##FUNCTION(__VA_ARGS__); }
#define D MPI_DOUBLE
#define B MPI_BYTE
#define W MPI_COMM_WORLD
CALL(barrier, Barrier, W)
CALL(bcast, Bcast, received, n, B, 0, W)
CALL(reduce, Reduce, sent, received, n / 8, D, MPI_SUM, 0, W)
CALL(allreduce, Allreduce, sent, received, n / 8, D, MPI_SUM, W)
CALL(gather, Gather, sent, n, B, received, n, B, 0, W)
CALL(scatter, Scatter, sent, n, B, received, n, B, 0, W)
CALL(allgather, Allgather, sent, n, B, received, n, B, W)
CALL(alltoall, Alltoall, sent, n, B, received, n, B, W)
CALL(reduce_scatter, Reduce_scatter_block, sent, received, n / 8, D, MPI_SUM, W)
CALL(scan, Scan, sent, received, n / 8, D, MPI_SUM, W)
CALL(exscan, Exscan, sent, received, n / 8, D, MPI_SUM, W)
CALL(gatherv, Gatherv, sent, n, B, received, counts, places, B, 0, W)
CALL(scatterv, Scatterv, sent, counts, places, B, received, n, B, 0, W)
CALL(allgatherv, Allgatherv, sent, n, B, received, counts, places, B, W)
CALL(alltoallv, Alltoallv, sent, counts, places, B, received, counts, places, B, W)

static const struct {
    const char *name;
    call_fn *public, *own;
} CALLS[] = {
#define ROW(NAME) {#NAME, NAME##_public, NAME##_own},
    ROW(barrier) ROW(bcast) ROW(reduce) ROW(allreduce) ROW(gather) ROW(scatter) ROW(allgather)
        ROW(alltoall) ROW(reduce_scatter) ROW(scan) ROW(exscan) ROW(gatherv) ROW(scatterv)
            ROW(allgatherv) ROW(alltoallv)};
enum { N_CALLS = sizeof CALLS / sizeof *CALLS };

/* Microseconds a call on the slowest rank, of so many calls in a row. */
static double batch(call_fn *call, int n, int calls) {
    double mine, most;
    PMPI_Barrier(W);
    double begun = PMPI_Wtime();
    for (int k = 0; k < calls; k++) call(n);
    mine = (PMPI_Wtime() - begun) / calls * 1e6;
    PMPI_Allreduce(&mine, &most, 1, D, MPI_MAX, W);
    return most;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int which, int n, int rounds, double seconds) {
    double times[2][MOST_ROUNDS];
    for (int r = 0; r < size; r++) counts[r] = n, places[r] = r * n;
    for (int k = 0; k < 10; k++) CALLS[which].public(n), CALLS[which].own(n);
    double once = batch(CALLS[which].public, n, 3) + batch(CALLS[which].own, n, 3);
    int calls = (int)(seconds * 1e6 / rounds / once);
    calls = calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : calls;
    PMPI_Bcast(&calls, 1, MPI_INT, 0, W);
    for (int k = 0; k < rounds; k++) {
        times[0][k] = batch(CALLS[which].public, n, calls);
        times[1][k] = batch(CALLS[which].own, n, calls);
    }
    for (int k = 0; k < 2; k++) qsort(times[k], (size_t)rounds, sizeof times[k][0], by_size);
    if (rank) return;
    printf("%s %d", CALLS[which].name, n);
    for (int k = 0; k < 2; k++)
        printf(" %.4f %.4f %.4f", times[k][0], times[k][rounds / 2], times[k][rounds - 1]);
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    int split = 3, most = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &rank);
    MPI_Comm_size(W, &size);
    while (split < argc && strcmp(argv[split], "--")) split++;
    for (int k = split + 1; k < argc; k++) most = atoi(argv[k]) > most ? atoi(argv[k]) : most;
    size_t room = (size_t)most * (size_t)size + 8;
    sent = calloc(room, 1);
    received = calloc(room, 1);
    counts = calloc((size_t)size, sizeof *counts);
    places = calloc((size_t)size, sizeof *places);
    if (argc < 4 || !sent || !received || !counts || !places) MPI_Abort(W, 2);
    int rounds = atoi(argv[1]) < MOST_ROUNDS ? atoi(argv[1]) : MOST_ROUNDS;
    for (int c = 3; c < split; c++)
        for (int which = 0; which < N_CALLS; which++)
            if (!strcmp(argv[c], CALLS[which].name))
                for (int k = split + 1; k < argc; k++)
                    measure(which, atoi(argv[k]), rounds, atof(argv[2]));
    MPI_Finalize();
    return 0;
}
