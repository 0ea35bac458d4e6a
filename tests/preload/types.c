/* Collectives of derived types: dense ones, which move as bytes, and others; each freed, so that MPI gives its
 * handle to the next one. Prints what is wrong. */
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3, MOST = 16, ROOM = 512, NONE = 0x55 };
static int rank, size, wrong;

typedef struct {
    double x;
    int n;
} padded;

/* A double and an int, in bytes from the element's address. */
static MPI_Datatype of_two(MPI_Aint x, MPI_Aint n) {
    int lengths[] = {1, 1};
    MPI_Aint places[] = {x, n};
    MPI_Datatype inner[] = {MPI_DOUBLE, MPI_INT}, type;
    MPI_Type_create_struct(2, lengths, places, inner, &type);
    return type;
}

/* Types of 12 or 24 bytes of data: three without gaps, and others with gaps or in another order. */
enum { TYPES = 11 };
static MPI_Datatype make(int k) {
    MPI_Datatype type, whole;
    int lengths[] = {1, 2}, swapped[] = {2, 0};
    switch (k) {
    case 0:
        MPI_Type_contiguous(3, MPI_INT, &type);
        break;
    case 1:
        MPI_Type_vector(3, 1, 2, MPI_INT, &type);
        break;
    case 2:
        type = of_two(0, sizeof(double)); /* its extent may be 16 or 12 */
        break;
    case 3:
        MPI_Type_indexed(2, lengths, swapped, MPI_INT, &type);
        break;
    case 4:
        whole = of_two(0, offsetof(padded, n));
        MPI_Type_create_resized(whole, 0, sizeof(padded), &type);
        MPI_Type_free(&whole);
        break;
    case 5:
        whole = of_two(0, sizeof(double));
        MPI_Type_create_resized(whole, 0, sizeof(double) + sizeof(int), &type);
        MPI_Type_free(&whole);
        break;
    case 6:
        MPI_Type_contiguous(3, MPI_DOUBLE, &type);
        break;
    case 7:
        type = of_two(sizeof(double), 0);
        break;
    case 8: /* that of which MPI must pack the data */
        MPI_Type_vector(2, 1, 2, MPI_INT, &whole);
        MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 16},
                               (MPI_Datatype[]){whole, MPI_DOUBLE}, &type);
        MPI_Type_free(&whole);
        break;
    case 9:
        MPI_Type_indexed(3, (int[]){1, 3, 2}, (int[]){7, 0, 4}, MPI_SHORT, &type);
        break;
    default:
        MPI_Type_vector(3, 1, 3, MPI_DOUBLE, &type);
    }
    MPI_Type_commit(&type);
    return type;
}

static unsigned char sent[MOST * ROOM], taken[MOST * ROOM], want[MOST * ROOM];

/* What MPI_Pack and MPI_Unpack make of `n` elements that a rank sends, at an address. */
static void expect_at(MPI_Datatype type, int from, MPI_Aint first, int n, MPI_Aint to) {
    unsigned char packed[ROOM], memory[MOST * ROOM];
    int at = 0, back = 0;
    for (int k = 0; k < MOST * ROOM; k++) memory[k] = (unsigned char)(from * 31 + k);
    MPI_Pack(memory + first, n, type, packed, ROOM, &at, MPI_COMM_SELF);
    MPI_Unpack(packed, at, &back, want + to, n, type, MPI_COMM_SELF);
}

static void clear(void) {
    for (int k = 0; k < MOST * ROOM; k++) sent[k] = (unsigned char)(rank * 31 + k);
    memset(taken, NONE, sizeof taken);
    memset(want, NONE, sizeof want);
}

static void check(const void *got, const char *what, int k) {
    if (memcmp(got, want, sizeof want) && wrong++ < 10)
        fprintf(stderr, "rank %d of %d: %s of type %d is wrong\n", rank, size, what, k);
}

static void collectives(MPI_Datatype type, int k, int turn, MPI_Comm comm) {
    const int root = turn % size;
    int counts[MOST], places[MOST];
    MPI_Aint low, extent;
    MPI_Request request;
    MPI_Type_get_extent(type, &low, &extent);
    for (int r = 0; r < size; r++) counts[r] = N, places[r] = N * r;
    clear();
    memcpy(taken, sent, rank == root ? sizeof taken : 0);
    memcpy(want, sent, rank == root ? sizeof want : 0);
    if (rank != root) expect_at(type, root, 0, N, 0);
    MPI_Bcast(taken, N, type, root, comm);
    check(taken, "MPI_Bcast", k);
#define ALL(FROM) \
    for (int r = 0; r < size; r++) expect_at(type, r, FROM, N, N * r * extent)
    for (int way = 0; way < 3; way++) {
        clear();
        if (rank == root) ALL(0);
        if (way == 0) MPI_Gather(sent, N, type, taken, N, type, root, comm);
        if (way == 1) MPI_Gatherv(sent, N, type, taken, counts, places, type, root, comm);
        if (way == 2) {
            MPI_Igather(sent, N, type, taken, N, type, root, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        check(taken, "MPI_Gather", k);
        if (rank == root) memset(taken + (rank ? 0 : N * extent), NONE, (size_t)(N * extent));
        MPI_Gather(rank == root ? MPI_IN_PLACE : sent, N, type, taken, N, type, root, comm);
        check(taken, "MPI_Gather in place", k);
        clear();
        expect_at(type, root, N * rank * extent, N, 0);
        if (way == 0) MPI_Scatter(sent, N, type, taken, N, type, root, comm);
        if (way == 1) MPI_Scatterv(sent, counts, places, type, taken, N, type, root, comm);
        if (way == 2) {
            MPI_Iscatter(sent, N, type, taken, N, type, root, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        check(taken, "MPI_Scatter", k);
        clear();
        ALL(0);
        if (way == 0) MPI_Allgather(sent, N, type, taken, N, type, comm);
        if (way == 1) MPI_Allgatherv(sent, N, type, taken, counts, places, type, comm);
        if (way == 2) {
            memcpy(taken, want, sizeof taken);
            memset(taken, NONE, (size_t)(N * rank * extent));
            MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, taken, N, type, comm);
        }
        check(taken, "MPI_Allgather", k);
        clear();
        ALL(N * rank * extent);
        if (way == 0) MPI_Alltoall(sent, N, type, taken, N, type, comm);
        if (way == 1) MPI_Alltoallv(sent, counts, places, type, taken, counts, places, type, comm);
        if (way == 2) {
            MPI_Ialltoall(sent, N, type, taken, N, type, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        check(taken, "MPI_Alltoall", k);
    }
}

/* One side tells bytes, the other one elements. */
static void mixed(MPI_Datatype type, int k, MPI_Comm comm) {
    int bytes, at = 0;
    unsigned char packed[ROOM];
    MPI_Type_size(type, &bytes);
    clear();
    MPI_Pack(sent, N, type, packed, ROOM, &at, MPI_COMM_SELF);
    MPI_Aint low, extent;
    MPI_Type_get_extent(type, &low, &extent);
    ALL(0);
    MPI_Allgather(packed, N * bytes, MPI_PACKED, taken, N, type, comm);
    check(taken, "MPI_Allgather of packed elements", k);
}

/* Blocks with a place between them; and the type is freed, and its handle given to another one, while a request
 * of it is under way. Returns a copy of the type. */
static MPI_Datatype apart(MPI_Datatype type, int k, MPI_Comm comm) {
    int counts[MOST], places[MOST];
    MPI_Aint low, extent;
    MPI_Datatype dup, other;
    MPI_Request request;
    MPI_Type_get_extent(type, &low, &extent);
    for (int r = 0; r < size; r++) counts[r] = 1 + r % 2, places[r] = N * r;
    for (int way = 0; way < 3; way++) {
        clear();
        for (int r = 0; r < size; r++) expect_at(type, r, 0, counts[r], places[r] * extent);
        MPI_Allgatherv(sent, counts[rank], type, taken, counts, places, type, comm);
        check(taken, "MPI_Allgatherv of blocks that are apart", k);
        for (int r = 0; r < size; r++)
            if (r != rank) memset(taken + places[r] * extent, NONE, (size_t)(counts[r] * extent));
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, taken, counts, places, type, comm);
        check(taken, "MPI_Allgatherv in place", k);
        clear();
        ALL(0);
        if (way == 2) MPI_Type_dup(type, &dup);
        MPI_Iallgather(sent, N, type, taken, N, type, comm, &request);
        if (way == 2) {
            MPI_Type_free(&type);
            MPI_Type_vector(2, 1, 2, MPI_CHAR, &other);
            MPI_Type_commit(&other);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check(taken, "MPI_Iallgather", k);
    }
    MPI_Type_free(&other);
    return dup;
}

/* Blocks with types of their own: the elements, or as many bytes, in turn. */
static void own_types(MPI_Datatype type, int k, MPI_Comm comm) {
    MPI_Datatype types[MOST];
    int counts[MOST], places[MOST], bytes;
    MPI_Request request;
    MPI_Aint low, extent;
    MPI_Type_get_extent(type, &low, &extent);
    MPI_Type_size(type, &bytes);
    for (int way = 0; way < 4; way++) {
        clear();
        for (int r = 0; r < size; r++) {
            const bool as_bytes = (rank + r + way / 2) % 2;
            types[r] = as_bytes ? MPI_BYTE : type;
            counts[r] = as_bytes ? N * bytes : N;
            places[r] = (int)(N * r * extent);
            expect_at(types[r], r, N * rank * extent, counts[r], places[r]);
        }
        if (way % 2 == 0)
            MPI_Alltoallw(sent, counts, places, types, taken, counts, places, types, comm);
        else {
            MPI_Ialltoallw(sent, counts, places, types, taken, counts, places, types, comm,
                           &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        check(taken, "MPI_Alltoallw", k);
    }
}

/* Blocks for the neighbours in a ring. */
static void neighbours(MPI_Datatype type, int k, MPI_Comm ring) {
    const int left = (rank + size - 1) % size, right = (rank + 1) % size;
    int counts[] = {N, N}, places[] = {0, N};
    MPI_Request request;
    MPI_Aint low, extent;
    MPI_Type_get_extent(type, &low, &extent);
    for (int way = 0; way < 3; way++) {
        clear();
        expect_at(type, left, 0, N, 0);
        expect_at(type, right, 0, N, N * extent);
        if (way < 2) MPI_Neighbor_allgather(sent, N, type, taken, N, type, ring);
        if (way == 2) {
            MPI_Ineighbor_allgather(sent, N, type, taken, N, type, ring, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        check(taken, "MPI_Neighbor_allgather", k);
        clear();
        expect_at(type, left, N * extent, N, 0); /* sent to the right one */
        expect_at(type, right, 0, N, N * extent);
        if (way == 0) MPI_Neighbor_alltoall(sent, N, type, taken, N, type, ring);
        if (way == 1)
            MPI_Neighbor_alltoallv(sent, counts, places, type, taken, counts, places, type, ring);
        if (way == 2) {
            MPI_Ineighbor_alltoall(sent, N, type, taken, N, type, ring, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        check(taken, "MPI_Neighbor_alltoall", k);
        clear();
        memcpy(taken, sent, sizeof taken); /* a halo: what is sent and received is in one array */
        memcpy(want, sent, sizeof want);
        expect_at(type, left, N * extent, N, 2 * N * extent);
        expect_at(type, right, 0, N, 3 * N * extent);
        MPI_Aint from[] = {0, N * extent}, to[] = {2 * N * extent, 3 * N * extent};
        MPI_Datatype types[] = {type, type};
        if (way < 2)
            MPI_Neighbor_alltoallw(taken, counts, from, types, taken, counts, to, types, ring);
        else {
            MPI_Ineighbor_alltoallw(taken, counts, from, types, taken, counts, to, types, ring,
                                    &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        check(taken, "MPI_Neighbor_alltoallw", k);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm own;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    const int ends[] = {(rank + size - 1) % size, (rank + 1) % size};
    const int weights[] = {1, 1};
    MPI_Comm ring;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, ends, weights, 2, ends, weights,
                                   MPI_INFO_NULL, 0, &ring);
    for (int turn = 0; turn < 10; turn++) MPI_Barrier(own), MPI_Barrier(ring);
    for (int again = 0; again < 3; again++)
        for (int k = 0; k < TYPES; k++) {
            MPI_Datatype type = make(again % 2 ? TYPES - 1 - k : k);
            for (int turn = 0; turn < 4; turn++) collectives(type, k, turn, own);
            for (int turn = 0; turn < 3; turn++) mixed(type, k, own);
            if (size > 2) neighbours(type, k, ring); /* else both are one */
            own_types(type, k, own);
            type = apart(type, k, own);
            (again ? PMPI_Type_free : MPI_Type_free)(&type); /* as a tool may do */
        }
    MPI_Comm_free(&own);
    MPI_Comm_free(&ring);
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (!rank) printf("wrong: %d\n", all);
    MPI_Finalize();
    return all != 0;
}
