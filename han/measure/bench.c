/* Times of collectives from C: MPI's public names, which han serves, and the MPI library's own functions
 * behind them, in turns. `han bench-c` compiles and runs it.
 *
 *     bench JSON MODE ELEMENTS ROUNDS SECONDS COLLECTIVE... -- BYTES...
 *
 * Rank 0 prints a line for each call: microseconds of han and of the library (medians of the rounds, each
 * the mean of a batch of calls on the slowest rank), how many times as long the library takes, and the
 * least and the greatest of this ratio over the rounds; at the end the geometric mean. It writes the same
 * as JSON to the file JSON, unless this is "". */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_ROUNDS = 101,
    MOST_CALLS = 10000,
    MOST_EXTENT = 4, /* of an element, over the bytes of its data */
    FIRST = 6,       /* argument that names a collective */
    WARM = 10,
    SOME = 100,
    SETTLING = 10,
    SETTLING_RING = 110
};

static char *sent, *received;
static int rank, size, *counts, *places;
static MPI_Comm ring = MPI_COMM_NULL; /* each rank's neighbours are the ones before and after it */

static MPI_Request request = MPI_REQUEST_NULL;

/* What moves in calls that combine nothing: the elements' type, and the bytes of data of one. */
static MPI_Datatype type = MPI_BYTE;
static int each = 1;

typedef void call_fn(int n);

/* A call by its public name, and by MPI's own: to its end, to its request, and as a persistent request.
 * `n`: bytes of a message, or of a block. */
#define SIDE(SIDE_NAME, P, NAME, FUNCTION, LOWER, ...)                                            \
    static void NAME##_now_##SIDE_NAME(int n) { (void)n, P##_##FUNCTION(__VA_ARGS__); }           \
    static void NAME##_later_##SIDE_NAME(int n) { (void)n, P##_I##LOWER(__VA_ARGS__, &request); } \
    static void NAME##_again_##SIDE_NAME(int n) {                                                 \
        (void)n, PERSISTENT(P##_##FUNCTION##_init(__VA_ARGS__, MPI_INFO_NULL, &request));         \
    }
#define CALL(NAME, FUNCTION, LOWER, ...)                  \
    SIDE(public, MPI, NAME, FUNCTION, LOWER, __VA_ARGS__) \
    SIDE(own, PMPI, NAME, FUNCTION, LOWER, __VA_ARGS__)
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define PERSISTENT(CALL) CALL
#else
#define PERSISTENT(CALL) 0
#endif
#define D MPI_DOUBLE
#define N (n / each)
#define T type
#define W MPI_COMM_WORLD
#define R ring
CALL(barrier, Barrier, barrier, W)
CALL(bcast, Bcast, bcast, received, N, T, 0, W)
CALL(reduce, Reduce, reduce, sent, received, n / 8, D, MPI_SUM, 0, W)
CALL(allreduce, Allreduce, allreduce, sent, received, n / 8, D, MPI_SUM, W)
CALL(gather, Gather, gather, sent, N, T, received, N, T, 0, W)
CALL(scatter, Scatter, scatter, sent, N, T, received, N, T, 0, W)
CALL(allgather, Allgather, allgather, sent, N, T, received, N, T, W)
CALL(alltoall, Alltoall, alltoall, sent, N, T, received, N, T, W)
CALL(reduce_scatter, Reduce_scatter_block, reduce_scatter_block, sent, received, n / 8, D, MPI_SUM,
     W)
CALL(scan, Scan, scan, sent, received, n / 8, D, MPI_SUM, W)
CALL(exscan, Exscan, exscan, sent, received, n / 8, D, MPI_SUM, W)
CALL(gatherv, Gatherv, gatherv, sent, N, T, received, counts, places, T, 0, W)
CALL(scatterv, Scatterv, scatterv, sent, counts, places, T, received, N, T, 0, W)
CALL(allgatherv, Allgatherv, allgatherv, sent, N, T, received, counts, places, T, W)
CALL(alltoallv, Alltoallv, alltoallv, sent, counts, places, T, received, counts, places, T, W)
CALL(neighbor_allgather, Neighbor_allgather, neighbor_allgather, sent, N, T, received, N, T, R)
CALL(neighbor_alltoall, Neighbor_alltoall, neighbor_alltoall, sent, N, T, received, N, T, R)
CALL(neighbor_alltoallv, Neighbor_alltoallv, neighbor_alltoallv, sent, counts, places, T, received,
     counts, places, T, R)

enum { NOW, LATER, AGAIN, MODES };
static const char *const MODE_NAMES[MODES] = {"blocking", "nonblocking", "persistent"};
enum { PUBLIC, OWN, SIDES };

static const struct {
    const char *name;
    call_fn *make[MODES][SIDES];
} CALLS[] = {
#define ROW(NAME)                              \
    {#NAME,                                    \
     {{NAME##_now_public, NAME##_now_own},     \
      {NAME##_later_public, NAME##_later_own}, \
      {NAME##_again_public, NAME##_again_own}}},
    ROW(barrier) ROW(bcast) ROW(reduce) ROW(allreduce) ROW(gather) ROW(scatter) ROW(allgather)
        ROW(alltoall) ROW(reduce_scatter) ROW(scan) ROW(exscan) ROW(gatherv) ROW(scatterv)
            ROW(allgatherv) ROW(alltoallv) ROW(neighbor_allgather) ROW(neighbor_alltoall)
                ROW(neighbor_alltoallv)};
enum { N_CALLS = sizeof CALLS / sizeof *CALLS };

static int mode;

/* Make so many calls in a row, one after another. */
static void repeat(int which, int side, int n, int calls) {
    call_fn *make = CALLS[which].make[mode][side];
    for (int k = 0; k < calls; k++) {
        if (mode != AGAIN)
            make(n);
        else if (side == PUBLIC)
            MPI_Start(&request);
        else
            PMPI_Start(&request);
        if (mode != NOW && side == PUBLIC) MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (mode != NOW && side == OWN) PMPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Microseconds a call on the slowest rank, of so many calls in a row. */
static double batch(int which, int side, int n, int calls) {
    double mine, most;
    if (mode == AGAIN) CALLS[which].make[mode][side](n);
    PMPI_Barrier(W);
    double begun = PMPI_Wtime();
    repeat(which, side, n, calls);
    mine = (PMPI_Wtime() - begun) / calls * 1e6;
    if (mode == AGAIN) MPI_Request_free(&request);
    PMPI_Allreduce(&mine, &most, 1, D, MPI_MAX, W);
    return most;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

static double logarithms; /* of the ratios so far */
static int rows;
static FILE *json, *table;

static void tell(const char *name, int n, int rounds, double *han, double *library) {
    double ratio[MOST_ROUNDS];
    for (int k = 0; k < rounds; k++) ratio[k] = library[k] / han[k];
    double middle = median(ratio, rounds), own = median(han, rounds);
    double other = median(library, rounds);
    if (json)
        fprintf(
            json,
            "%s\n  {\"collective\": \"%s\", \"bytes\": %d, \"han_us\": %.4f, \"library_us\": %.4f, "
            "\"ratio\": %.3f, \"least\": %.3f, \"most\": %.3f}",
            rows ? "," : "", name, n, own, other, middle, ratio[0], ratio[rounds - 1]);
    if (table)
        fprintf(table, "%-18s %9d %10.3f %10.3f %7.2f  (%.2f .. %.2f)\n", name, n, own, other,
                middle, ratio[0], ratio[rounds - 1]);
    fflush(stdout);
    logarithms += log(middle);
    rows++;
}

/* Open the outputs of rank 0, and write what comes first; false without a file. */
static int begin(const char *path, const char *elements, int rounds) {
    const int printed = !strcmp(path, "-");
    if (*path) json = printed ? stdout : fopen(path, "w");
    if (*path && !json) return 0;
    table = printed ? NULL : stdout;
    if (json)
        fprintf(
            json,
            "{\"format\": \"han-bench-c\", \"mode\": \"%s\", \"elements\": \"%s\", \"ranks\": %d, "
            "\"rounds\": %d, \"rows\": [",
            MODE_NAMES[mode], elements, size, rounds);
    if (table)
        fprintf(
            table,
            "# han beside the MPI library from C, %s calls of %s, %d ranks, %d rounds in turns\n"
            "%-18s %9s %10s %10s %7s  (least .. most)\n",
            MODE_NAMES[mode], elements, size, rounds, "collective", "bytes", "han us", "library us",
            "ratio");
    return 1;
}

static void end(void) {
    if (json) fprintf(json, "\n]}\n");
    if (table && rows)
        fprintf(table, "# geometric mean of %d ratios: %.2f\n", rows, exp(logarithms / rows));
    if (json && json != stdout) fclose(json);
}

static void measure(int which, int n, int rounds, double seconds) {
    double han[MOST_ROUNDS], library[MOST_ROUNDS];
    for (int r = 0; r < size; r++) counts[r] = N, places[r] = r * N;
    for (int k = 0; k < WARM; k++) (void)batch(which, PUBLIC, n, 1), (void)batch(which, OWN, n, 1);
    int calls[SIDES]; /* in a batch, which takes as long on both sides */
    for (int side = 0; side < SIDES; side++) {
        const double most = seconds * 1e6 / rounds / SIDES / batch(which, side, n, SOME);
        calls[side] = most < 1 ? 1 : most > MOST_CALLS ? MOST_CALLS : (int)most;
    }
    PMPI_Bcast(calls, SIDES, MPI_INT, 0, W);
    for (int k = 0; k < rounds; k++) {
        han[k] = batch(which, PUBLIC, n, calls[PUBLIC]);
        library[k] = batch(which, OWN, n, calls[OWN]);
    }
    if (!rank) tell(CALLS[which].name, n, rounds, han, library);
}

/* Print the version of the MPI library, of whose ranks this process need not be one. */
static int tell_library(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    return fputs(version, stdout) < 0;
}

/* Make a ring that han serves. */
static void make_ring(void) {
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    const int ranks[] = {next, before}, n = size < 2 ? 0 : next == before ? 1 : 2;
    MPI_Dist_graph_create_adjacent(W, n, ranks, MPI_UNWEIGHTED, n, ranks, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &ring);
    for (int k = 0; k < SETTLING_RING; k++) MPI_Barrier(ring);
    MPI_Neighbor_alltoall(sent, 1, T, received, 1, T, ring);
}

/* Bytes, numbers that are apart, as a column of a matrix, or structures with padding. */
static void make_type(const char *elements) {
    int lengths[] = {1, 1, 1};
    MPI_Aint places[] = {0, 4, 8};
    MPI_Datatype inner[] = {MPI_SHORT, MPI_INT, MPI_SHORT}, joined;
    if (!strcmp(elements, "bytes")) return;
    each = 8;
    if (!strcmp(elements, "columns")) {
        MPI_Type_create_resized(D, 0, MOST_EXTENT * each, &type);
    } else {
        MPI_Type_create_struct(3, lengths, places, inner, &joined);
        MPI_Type_create_resized(joined, 0, 12, &type);
        MPI_Type_free(&joined);
    }
    MPI_Type_commit(&type);
}

int main(int argc, char **argv) {
    int split = FIRST, most = 0;
    if (argc == 2 && !strcmp(argv[1], "library")) return tell_library();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &rank);
    MPI_Comm_size(W, &size);
    while (split < argc && strcmp(argv[split], "--")) split++;
    for (int k = split + 1; k < argc; k++) most = atoi(argv[k]) > most ? atoi(argv[k]) : most;
    size_t room = ((size_t)most * (size_t)(size + 1) + 8) * MOST_EXTENT;
    sent = calloc(room, 1);
    received = calloc(room, 1);
    counts = calloc((size_t)size, sizeof *counts);
    places = calloc((size_t)size, sizeof *places);
    if (argc < FIRST + 1 || !sent || !received || !counts || !places) MPI_Abort(W, 2);
    make_type(argv[3]);
    while (mode + 1 < MODES && strcmp(argv[2], MODE_NAMES[mode])) mode++;
    for (int k = 0; k < SETTLING; k++) MPI_Barrier(W);
    if (mode == AGAIN) CALLS[0].make[AGAIN][OWN](0);
    if (mode == AGAIN && request == MPI_REQUEST_NULL) {
        if (!rank) fprintf(stderr, "this MPI library has no persistent collectives\n");
        MPI_Abort(W, 2);
    }
    if (mode == AGAIN) MPI_Request_free(&request);
    int rounds = atoi(argv[4]) < MOST_ROUNDS ? atoi(argv[4]) : MOST_ROUNDS;
    if (!rank && !begin(argv[1], argv[3], rounds)) {
        fprintf(stderr, "%s cannot be written\n", argv[1]);
        MPI_Abort(W, 2);
    }
    for (int c = FIRST; c < split; c++)
        if (strstr(argv[c], "neighbor") && ring == MPI_COMM_NULL) make_ring();
    for (int c = FIRST; c < split; c++)
        for (int which = 0; which < N_CALLS; which++)
            if (!strcmp(argv[c], CALLS[which].name))
                for (int k = split + 1; k < argc; k++) {
                    measure(which, atoi(argv[k]), rounds, atof(argv[5]));
                    if (!strcmp(argv[c], "barrier")) break; /* it has no size */
                }
    if (!rank) end();
    if (ring != MPI_COMM_NULL) MPI_Comm_free(&ring);
    if (type != MPI_BYTE) MPI_Type_free(&type);
    MPI_Finalize();
    return 0;
}
