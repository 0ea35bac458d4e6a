/* Nonblocking and persistent collectives of a C program, and those between neighbours, with known results.
 * Prints what is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };
static int rank, size, wrong;

static void expect(int right, const char *what, int n) {
    if (right) return;
    if (wrong++ < 10)
        fprintf(stderr, "rank %d of %d: %s of %d elements is wrong\n", rank, size, what, n);
}

static int sum(void) { return size * (size - 1) / 2; }

/* ---- all collectives, started and completed in several ways ----------------------------------- */

enum { REQUESTS = 17 };
typedef struct {
    int n, counts[MOST], places[MOST], bytes[MOST];
    MPI_Datatype types[MOST];
    int *bcast, *mine, *reduced, *all, *scan, *exscan, *gathered, *scattered, *allgathered, *turned;
    int *gatheredv, *scatteredv, *allgatheredv, *turnedv, *turnedw, *whole, *part, *partv;
} buffers;

static int *ints(int n) { return malloc(sizeof(int) * (size_t)(n + 1)); }

static void make(buffers *b, int n) {
    b->n = n;
    for (int r = 0; r < size; r++) {
        b->counts[r] = n;
        b->places[r] = n * r;
        b->bytes[r] = n * r * (int)sizeof(int);
        b->types[r] = MPI_INT;
    }
    int **few[] = {&b->bcast,  &b->mine,      &b->reduced,    &b->all,  &b->scan,
                   &b->exscan, &b->scattered, &b->scatteredv, &b->part, &b->partv};
    int **many[] = {&b->gathered,     &b->allgathered, &b->turned,  &b->gatheredv,
                    &b->allgatheredv, &b->turnedv,     &b->turnedw, &b->whole};
    for (int k = 0; k < 10; k++) *few[k] = ints(n);
    for (int k = 0; k < 8; k++) *many[k] = ints(n * size);
}

static void fill(buffers *b, int turn) {
    for (int k = 0; k < b->n; k++) {
        b->bcast[k] = rank ? -1 : turn + k;
        b->mine[k] = rank + turn + k;
        b->reduced[k] = b->all[k] = b->scan[k] = b->exscan[k] = b->scattered[k] = -1;
        b->scatteredv[k] = b->part[k] = b->partv[k] = -1;
    }
    for (int k = 0; k < b->n * size; k++) {
        b->whole[k] = 1000 * rank + turn + k;
        b->gathered[k] = b->allgathered[k] = b->turned[k] = b->gatheredv[k] = -1;
        b->allgatheredv[k] = b->turnedv[k] = b->turnedw[k] = -1;
    }
}

/* X(name, name in lower case, arguments) */
#define CALLS(X)                                                                                   \
    X(Bcast, bcast, b->bcast, n, MPI_INT, 0, comm)                                                 \
    X(Reduce, reduce, b->mine, b->reduced, n, MPI_INT, MPI_SUM, 0, comm)                           \
    X(Allreduce, allreduce, b->mine, b->all, n, MPI_INT, MPI_SUM, comm)                            \
    X(Scan, scan, b->mine, b->scan, n, MPI_INT, MPI_SUM, comm)                                     \
    X(Exscan, exscan, b->mine, b->exscan, n, MPI_INT, MPI_SUM, comm)                               \
    X(Gather, gather, b->mine, n, MPI_INT, b->gathered, n, MPI_INT, 0, comm)                       \
    X(Scatter, scatter, b->whole, n, MPI_INT, b->scattered, n, MPI_INT, 0, comm)                   \
    X(Allgather, allgather, b->mine, n, MPI_INT, b->allgathered, n, MPI_INT, comm)                 \
    X(Alltoall, alltoall, b->whole, n, MPI_INT, b->turned, n, MPI_INT, comm)                       \
    X(Gatherv, gatherv, b->mine, n, MPI_INT, b->gatheredv, b->counts, b->places, MPI_INT, 0, comm) \
    X(Scatterv, scatterv, b->whole, b->counts, b->places, MPI_INT, b->scatteredv, n, MPI_INT, 0,   \
      comm)                                                                                        \
    X(Allgatherv, allgatherv, b->mine, n, MPI_INT, b->allgatheredv, b->counts, b->places, MPI_INT, \
      comm)                                                                                        \
    X(Alltoallv, alltoallv, b->whole, b->counts, b->places, MPI_INT, b->turnedv, b->counts,        \
      b->places, MPI_INT, comm)                                                                    \
    X(Alltoallw, alltoallw, b->whole, b->counts, b->bytes, b->types, b->turnedw, b->counts,        \
      b->bytes, b->types, comm)                                                                    \
    X(Reduce_scatter_block, reduce_scatter_block, b->whole, b->part, n, MPI_INT, MPI_SUM, comm)    \
    X(Reduce_scatter, reduce_scatter, b->whole, b->partv, b->counts, MPI_INT, MPI_SUM, comm)       \
    X(Barrier, barrier, comm)

#define NONBLOCKING(NAME, LOWER, ...) MPI_I##LOWER(__VA_ARGS__, &requests[k++]);
#define PERSISTENT(NAME, LOWER, ...) MPI_##NAME##_init(__VA_ARGS__, MPI_INFO_NULL, &requests[k++]);

static void start_all(buffers *b, int n, MPI_Comm comm, MPI_Request *requests) {
    int k = 0;
    CALLS(NONBLOCKING)
}

static void init_all(buffers *b, int n, MPI_Comm comm, MPI_Request *requests) {
    int k = 0;
    CALLS(PERSISTENT)
}

static void check(const buffers *b, int turn) {
    const int n = b->n;
    int right = 1;
    for (int k = 0; k < n; k++) {
        const int own = turn + k, total = sum() + size * own;
        right &= b->bcast[k] == own && (rank || b->reduced[k] == total) && b->all[k] == total;
        right &= b->scan[k] == rank * (rank + 1) / 2 + (rank + 1) * own;
        right &= !rank || b->exscan[k] == rank * (rank - 1) / 2 + rank * own;
        right &= b->scattered[k] == turn + n * rank + k && b->scatteredv[k] == b->scattered[k];
        right &= b->part[k] == 1000 * sum() + size * (turn + n * rank + k);
        right &= b->partv[k] == b->part[k];
        for (int r = 0; r < size; r++) {
            const int at = n * r + k, turned = 1000 * r + turn + n * rank + k;
            right &= rank || (b->gathered[at] == r + own && b->gatheredv[at] == r + own);
            right &= b->allgathered[at] == r + own && b->allgatheredv[at] == r + own;
            right &=
                b->turned[at] == turned && b->turnedv[at] == turned && b->turnedw[at] == turned;
        }
    }
    expect(right, "a nonblocking or persistent call", n);
}

typedef int look(int, const MPI_Request[], int *, MPI_Status[]);
typedef int look_some(int, const MPI_Request[], int *, int[], MPI_Status[]);

/* Wait for all requests without completing them, by functions of MPI 4.1, if MPI has them. */
static void look_at_all(const MPI_Request *requests) {
    look *all = (look *)dlsym(RTLD_DEFAULT, "MPI_Request_get_status_all");
    look_some *some = (look_some *)dlsym(RTLD_DEFAULT, "MPI_Request_get_status_some");
    int flag = 0, m = 0, indices[REQUESTS];
    if (!dlsym(RTLD_DEFAULT, "PMPI_Request_get_status_all")) return;
    while (!flag) all(REQUESTS, requests, &flag, MPI_STATUSES_IGNORE);
    some(REQUESTS, requests, &m, indices, MPI_STATUSES_IGNORE);
    expect(m == REQUESTS, "the complete ones of so many requests", m);
}

/* Complete all requests, in a way that depends on the turn. Of persistent ones Testall fails in
 * MPICH 5: `all` says that there are none. */
static void complete(MPI_Request *requests, int turn, int all) {
    int index, flag = 0, m, indices[REQUESTS];
    switch (turn % 6) {
    case 0:
        MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
        break;
    case 1:
        for (int k = REQUESTS; k--;) MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
        break;
    case 2:
        if (!all) MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE);
        while (all && !flag) MPI_Testall(REQUESTS, requests, &flag, MPI_STATUSES_IGNORE);
        break;
    case 3:
        for (int k = 0; k < REQUESTS; k++) {
            MPI_Waitany(REQUESTS, requests, &index, MPI_STATUS_IGNORE);
            expect(index >= 0 && index < REQUESTS, "an index", turn);
        }
        MPI_Waitany(REQUESTS, requests, &index, MPI_STATUS_IGNORE);
        expect(index == MPI_UNDEFINED, "no index", turn);
        break;
    case 4:
        for (int k = 0; k < REQUESTS; k += m)
            MPI_Waitsome(REQUESTS, requests, &m, indices, MPI_STATUSES_IGNORE);
        break;
    default:
        if (all) look_at_all(requests);
        for (int k = 0; k < REQUESTS; k++) {
            for (flag = 0; !flag;) MPI_Request_get_status(requests[k], &flag, MPI_STATUS_IGNORE);
            for (flag = 0; !flag;) MPI_Test(&requests[k], &flag, MPI_STATUS_IGNORE);
        }
    }
}

static void nonblocking(MPI_Comm comm) {
    static const int sizes[] = {0, 1, 100, 5000};
    MPI_Request requests[REQUESTS];
    buffers b;
    for (int s = 0; s < 4; s++) {
        make(&b, sizes[s]);
        for (int turn = 0; turn < 12; turn++) {
            fill(&b, turn);
            start_all(&b, sizes[s], comm, requests);
            complete(requests, turn, 1);
            check(&b, turn);
            for (int k = 0; k < REQUESTS; k++)
                expect(requests[k] == MPI_REQUEST_NULL, "a request that is complete", turn);
        }
    }
}

static void persistent(MPI_Comm comm) {
    static const int sizes[] = {1, 100, 5000};
    MPI_Request requests[REQUESTS], before[REQUESTS];
    buffers b;
    for (int s = 0; s < 3; s++) {
        make(&b, sizes[s]);
        init_all(&b, sizes[s], comm, requests);
        memcpy(before, requests, sizeof before);
        for (int turn = 0; turn < 12; turn++) {
            fill(&b, turn);
            if (turn % 2)
                MPI_Startall(REQUESTS, requests);
            else
                for (int k = 0; k < REQUESTS; k++) MPI_Start(&requests[k]);
            complete(requests, turn, 0);
            check(&b, turn);
            expect(!memcmp(before, requests, sizeof before), "a handle after its completion", turn);
            MPI_Waitall(REQUESTS, requests, MPI_STATUSES_IGNORE); /* inactive ones: nothing */
        }
        for (int k = 0; k < REQUESTS; k++) {
            MPI_Request_free(&requests[k]);
            expect(requests[k] == MPI_REQUEST_NULL, "a freed request", k);
        }
    }
}

/* Many calls alike under way at a time, more than han keeps for later ones, with sizes of their own. */
static void alike(MPI_Comm comm) {
    enum { ALIKE = 300, LEAST = 5, ROOM = LEAST * MOST };
    static int sent[ALIKE][ROOM], taken[ALIKE][ROOM], mine[ALIKE], all[ALIKE];
    MPI_Request requests[2 * ALIKE];
    int counts[ALIKE][MOST], places[MOST];
    for (int r = 0; r < size; r++) places[r] = LEAST * r;
    for (int turn = 0; turn < 12; turn++) {
        const int few = turn % 3 ? 4 : ALIKE;
        for (int k = 0; k < few; k++) {
            mine[k] = rank + k + turn;
            for (int r = 0; r < size; r++) counts[k][r] = (k + turn) % LEAST;
            for (int j = 0; j < ROOM; j++) sent[k][j] = 1000 * rank + j + k, taken[k][j] = -1;
            MPI_Iallreduce(&mine[k], &all[k], 1, MPI_INT, MPI_SUM, comm, &requests[2 * k]);
            MPI_Ialltoallv(sent[k], counts[k], places, MPI_INT, taken[k], counts[k], places,
                           MPI_INT, comm, &requests[2 * k + 1]);
        }
        if (turn % 2)
            MPI_Waitall(2 * few, requests, MPI_STATUSES_IGNORE);
        else
            for (int k = 2 * few, flag; k--;)
                for (flag = 0; !flag;) MPI_Test(&requests[k], &flag, MPI_STATUS_IGNORE);
        for (int k = 0; k < few; k++) {
            expect(all[k] == sum() + size * (k + turn), "Iallreduce of many", k);
            for (int j = 0; j < LEAST * size; j++) {
                const int from = j / LEAST, n = j % LEAST;
                const int right = n < counts[k][0] ? 1000 * from + LEAST * rank + n + k : -1;
                expect(taken[k][j] == right, "Ialltoallv of many", k);
            }
        }
    }
}

/* ---- derived types, own operations, messages between ----------------------------------------- */

static void larger(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int k = 0; k < *n; k++)
        if (((int *)in)[k] > ((int *)inout)[k]) ((int *)inout)[k] = ((int *)in)[k];
}

/* Types and operations are freed before the calls with them are complete. */
static void freed_early(MPI_Comm comm) {
    enum { N = 50 };
    for (int turn = 0; turn < 6; turn++) {
        MPI_Op op;
        MPI_Datatype column;
        MPI_Op_create(larger, 1, &op);
        MPI_Type_vector(N, 1, 3, MPI_INT, &column);
        MPI_Type_commit(&column);
        int a[3 * N], found = -1, right = 1;
        for (int k = 0; k < 3 * N; k++) a[k] = rank ? -1 : k + turn;
        MPI_Request both[2];
        MPI_Ibcast(a, 1, column, 0, comm, &both[0]);
        MPI_Iallreduce(&rank, &found, 1, MPI_INT, op, comm, &both[1]);
        MPI_Type_free(&column);
        MPI_Op_free(&op);
        expect(op == MPI_OP_NULL && column == MPI_DATATYPE_NULL, "what was freed", turn);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        for (int k = 0; k < 3 * N; k++) right &= a[k] == (rank && k % 3 ? -1 : k + turn);
        expect(right, "ibcast of a column", turn);
        expect(found == size - 1, "iallreduce with an own operation", turn);
    }
}

/* A request of a message among those of collectives. */
static void with_messages(MPI_Comm comm) {
    const int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int *sent = ints(50000), *taken = ints(50000), mine, all;
    MPI_Request persistent, three[3];
    MPI_Allreduce_init(&mine, &all, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &persistent);
    for (int turn = 0; turn < 8; turn++) {
        for (int k = 0; k < 50000; k++) sent[k] = rank + turn;
        mine = rank + turn;
        three[0] = persistent;
        MPI_Start(&three[0]);
        MPI_Irecv(taken, 50000, MPI_INT, from, 5, comm, &three[1]);
        MPI_Isend(sent, 50000, MPI_INT, to, 5, comm, &three[2]);
        MPI_Waitall(3, three, MPI_STATUSES_IGNORE);
        expect(three[0] == persistent && three[1] == MPI_REQUEST_NULL, "handles", turn);
        expect(all == sum() + size * turn && taken[49999] == from + turn, "a message", turn);
    }
    MPI_Request_free(&persistent);
}

/* ---- neighbours ------------------------------------------------------------------------------- */

static void neighbours(MPI_Comm comm, int in, int out, const int *from) {
    int mine[3], got[3 * MOST], sent[3 * MOST], all[3 * MOST], counts[MOST], places[MOST];
    MPI_Aint bytes[MOST];
    MPI_Datatype types[MOST];
    MPI_Request request;
    for (int r = 0; r < MOST; r++) {
        counts[r] = 2;
        places[r] = 3 * r;
        bytes[r] = 3 * r * (MPI_Aint)sizeof(int);
        types[r] = MPI_INT;
    }
    for (int turn = 0; turn < 24; turn++) {
        int right = 1, when = turn % 3, call = turn / 3 % 4;
        for (int k = 0; k < 3; k++) mine[k] = 100 * rank + turn + k;
        for (int k = 0; k < 3 * out; k++) sent[k] = 100 * rank + turn + k % 3;
        memset(got, -1, sizeof got);
#define THREE(LOWER, ...)                                        \
    if (!when) MPI_Neighbor_##LOWER(__VA_ARGS__);                \
    if (when == 1) MPI_Ineighbor_##LOWER(__VA_ARGS__, &request); \
    if (when == 2)                                               \
        MPI_Neighbor_##LOWER##_init(__VA_ARGS__, MPI_INFO_NULL, &request), MPI_Start(&request);
        if (call == 0) {
            THREE(allgather, mine, 3, MPI_INT, got, 3, MPI_INT, comm)
        } else if (call == 1) {
            THREE(alltoall, sent, 3, MPI_INT, got, 3, MPI_INT, comm)
        } else if (call == 2) {
            THREE(alltoallv, sent, counts, places, MPI_INT, got, counts, places, MPI_INT, comm)
        } else {
            THREE(alltoallw, sent, counts, bytes, types, got, counts, bytes, types, comm)
        }
        if (when) MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (when == 2) MPI_Request_free(&request);
        for (int r = 0; r < in; r++)
            for (int k = 0; k < (call < 2 ? 3 : 2) && from[r] >= 0; k++)
                right &= got[3 * r + k] == 100 * from[r] + turn + k;
        MPI_Allgather(mine, 3, MPI_INT, all, 3, MPI_INT, comm); /* of the same bytes as call 0 */
        for (int r = 0; r < 3 * size; r++) right &= all[r] == 100 * (r / 3) + turn + r % 3;
        expect(right, "a call of neighbours", turn);
    }
}

static void topologies(void) {
    int n = size, round = size > 2, from[2] = {(rank + size - 1) % size, (rank + 1) % size};
    int open[2] = {rank ? rank - 1 : -1, rank + 1 < size ? rank + 1 : -1};
    MPI_Comm ring, line, graph;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &n, &round, 0, &ring);
    neighbours(ring, 2, 2, round ? from : open);
    int no = 0, weight = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &n, &no, 0, &line);
    neighbours(line, 2, 2, open);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from[0], &weight, 1, &from[1], &weight,
                                   MPI_INFO_NULL, 0, &graph);
    neighbours(graph, 1, 1, from);
    MPI_Comm_free(&ring);
    MPI_Comm_free(&line);
    MPI_Comm_free(&graph);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm own;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    for (int turn = 0; turn < 10; turn++) MPI_Barrier(own);
    nonblocking(own);
    persistent(own);
    alike(own);
    freed_early(own);
    with_messages(own);
    topologies();
    nonblocking(MPI_COMM_WORLD); /* it has no blocking call: all are the library's */
    MPI_Comm_free(&own);
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (!rank) printf("wrong: %d\n", all);
    MPI_Finalize();
    return all != 0;
}
