/* Collectives of a C program, with known results: types, operations, roots, MPI_IN_PLACE, derived types,
 * the program's own operations, communicators that come and go. Prints what is wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <locale.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, wrong;

static void expect(int right, const char *what, int n) {
    if (right) return;
    if (wrong++ < 10)
        fprintf(stderr, "rank %d of %d: %s of %d elements is wrong\n", rank, size, what, n);
}

/* 0 + 1 + ... of all ranks */
static int sum(void) { return size * (size - 1) / 2; }

#define OF_TYPE(NAME, TYPE, MPI_TYPE)                                                             \
    static void reductions_##NAME(MPI_Comm comm, int n) {                                         \
        TYPE *a = malloc(sizeof *a * (size_t)n * size + 1), *b = malloc(sizeof *b * n + 1);       \
        int right = 1;                                                                            \
        for (int k = 0; k < n * size; k++) a[k] = (TYPE)(rank + k % 7);                           \
        memset(b, 0, sizeof *b * n);                                                              \
        MPI_Allreduce(a, b, n, MPI_TYPE, MPI_SUM, comm);                                          \
        for (int k = 0; k < n; k++) right &= b[k] == (TYPE)(sum() + size * (k % 7));              \
        expect(right, "allreduce " #TYPE, n);                                                     \
        MPI_Allreduce(a, b, n, MPI_TYPE, MPI_MAX, comm);                                          \
        for (int k = 0; k < n; k++) right &= b[k] == (TYPE)(size - 1 + k % 7);                    \
        expect(right, "allreduce max " #TYPE, n);                                                 \
        for (int root = 0; root < size; root++) {                                                 \
            memset(b, 0, sizeof *b * n);                                                          \
            MPI_Reduce(a, b, n, MPI_TYPE, MPI_SUM, root, comm);                                   \
            for (int k = 0; rank == root && k < n; k++)                                           \
                right &= b[k] == (TYPE)(sum() + size * (k % 7));                                  \
        }                                                                                         \
        expect(right, "reduce " #TYPE, n);                                                        \
        MPI_Scan(a, b, n, MPI_TYPE, MPI_SUM, comm);                                               \
        for (int k = 0; k < n; k++)                                                               \
            right &= b[k] == (TYPE)(rank * (rank + 1) / 2 + (rank + 1) * (k % 7));                \
        expect(right, "scan " #TYPE, n);                                                          \
        MPI_Exscan(a, b, n, MPI_TYPE, MPI_SUM, comm);                                             \
        for (int k = 0; rank && k < n; k++)                                                       \
            right &= b[k] == (TYPE)(rank * (rank - 1) / 2 + rank * (k % 7));                      \
        expect(right, "exscan " #TYPE, n);                                                        \
        MPI_Reduce_scatter_block(a, b, n, MPI_TYPE, MPI_SUM, comm);                               \
        for (int k = 0; k < n; k++) right &= b[k] == (TYPE)(sum() + size * ((rank * n + k) % 7)); \
        expect(right, "reduce_scatter_block " #TYPE, n);                                          \
        memcpy(b, a, sizeof *b * n);                                                              \
        MPI_Allreduce(MPI_IN_PLACE, b, n, MPI_TYPE, MPI_SUM, comm);                               \
        for (int k = 0; k < n; k++) right &= b[k] == (TYPE)(sum() + size * (k % 7));              \
        expect(right, "allreduce in place " #TYPE, n);                                            \
        free(a);                                                                                  \
        free(b);                                                                                  \
    }
OF_TYPE(double, double, MPI_DOUBLE)
OF_TYPE(int, int, MPI_INT)
OF_TYPE(short, short, MPI_SHORT)
OF_TYPE(char, char, MPI_CHAR) /* no numbers in the standard, but in all libraries */

static void blocks(MPI_Comm comm, int n) {
    int *one = malloc(sizeof *one * n + 1), *all = malloc(sizeof *all * n * size + 1),
        *more = malloc(sizeof *more * n * size + 1), right = 1;
    for (int root = 0; root < size; root++) {
        for (int k = 0; k < n; k++) one[k] = 1000 * rank + k;
        memset(all, 0, sizeof *all * n * size);
        MPI_Gather(one, n, MPI_INT, all, n, MPI_INT, root, comm);
        for (int k = 0; rank == root && k < n * size; k++)
            right &= all[k] == 1000 * (k / n) + k % n;
        for (int k = 0; k < n; k++) one[k] = rank == root ? k : -1;
        MPI_Bcast(one, n, MPI_INT, root, comm);
        for (int k = 0; k < n; k++) right &= one[k] == k;
        for (int k = 0; k < n * size; k++) all[k] = k;
        MPI_Scatter(all, n, MPI_INT, rank == root ? MPI_IN_PLACE : one, n, MPI_INT, root, comm);
        for (int k = 0; rank != root && k < n; k++) right &= one[k] == rank * n + k;
    }
    expect(right, "gather, bcast, scatter", n);
    for (int k = 0; k < n; k++) one[k] = 1000 * rank + k;
    MPI_Allgather(one, n, MPI_INT, all, n, MPI_INT, comm);
    for (int k = 0; k < n * size; k++) right &= all[k] == 1000 * (k / n) + k % n;
    memset(more, 0, sizeof *more * n * size);
    memcpy(more + rank * n, one, sizeof *one * n);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, more, n, MPI_INT, comm);
    right &= !memcmp(more, all, sizeof *all * n * size);
    expect(right, "allgather", n);
    for (int k = 0; k < n * size; k++) all[k] = 1000 * rank + k / n;
    MPI_Alltoall(all, n, MPI_INT, more, n, MPI_INT, comm);
    for (int k = 0; k < n * size; k++) right &= more[k] == 1000 * (k / n) + rank;
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_INT, comm);
    right &= !memcmp(more, all, sizeof *all * n * size);
    expect(right, "alltoall", n);
    free(one);
    free(all);
    free(more);
}

/* Blocks of (rank + 1) * n elements, with a gap of `gap` elements between them. */
static void own_sizes(MPI_Comm comm, int n, int gap) {
    int counts[64], places[64], bytes[64], from[64], to[64], takes[64], at = 0, right = 1;
    MPI_Datatype types[64];
    for (int r = 0; r < size; r++) {
        counts[r] = (r + 1) * n;
        places[r] = at;
        at += counts[r] + gap;
    }
    int *one = malloc(sizeof *one * (size + 1) * n + 4), *all = malloc(sizeof *all * (at + 1));
    for (int root = 0; root < size; root++) {
        for (int k = 0; k < counts[rank]; k++) one[k] = 1000 * rank + k;
        for (int k = 0; k < at; k++) all[k] = -1;
        MPI_Gatherv(one, counts[rank], MPI_INT, all, counts, places, MPI_INT, root, comm);
        for (int r = 0; rank == root && r < size; r++)
            for (int k = 0; k < counts[r] + gap; k++)
                right &= all[places[r] + k] == (k < counts[r] ? 1000 * r + k : -1);
        for (int k = 0; k < at; k++) all[k] = k;
        MPI_Scatterv(all, counts, places, MPI_INT, rank == root ? MPI_IN_PLACE : one, counts[rank],
                     MPI_INT, root, comm);
        for (int k = 0; rank != root && k < counts[rank]; k++) right &= one[k] == places[rank] + k;
    }
    expect(right, "gatherv, scatterv", n);
    for (int k = 0; k < counts[rank]; k++) one[k] = 1000 * rank + k;
    for (int turn = 0; turn < 2; turn++) {
        for (int k = 0; k < at; k++) all[k] = -1;
        memcpy(all + places[rank], one, sizeof *one * counts[rank]);
        MPI_Allgatherv(turn ? MPI_IN_PLACE : one, counts[rank], MPI_INT, all, counts, places,
                       MPI_INT, comm);
        for (int r = 0; r < size; r++)
            for (int k = 0; k < counts[r] + gap; k++)
                right &= all[places[r] + k] == (k < counts[r] ? 1000 * r + k : -1);
    }
    expect(right, "allgatherv", n);
    for (int k = 0; k < at; k++) all[k] = rank + k;
    MPI_Reduce_scatter(all, one, counts, MPI_INT, MPI_SUM, comm);
    int before = n * rank * (rank + 1) / 2;
    for (int k = 0; k < counts[rank]; k++) right &= one[k] == sum() + size * (before + k);
    expect(right, "reduce_scatter", n);
    free(one);
    one = malloc(sizeof *one * (size * counts[rank] + 1));
    for (int r = 0; r < size; r++) { /* to rank r: (r + 1) * n elements */
        from[r] = r * counts[rank];
        takes[r] = counts[rank];
        bytes[r] = places[r] * (int)sizeof *all;
        to[r] = from[r] * (int)sizeof *one;
        types[r] = MPI_INT;
        for (int k = 0; k < counts[r]; k++) all[places[r] + k] = 100 * rank + 10 * r + k % 10;
    }
    for (int turn = 0; turn < 2; turn++) {
        memset(one, 0, sizeof *one * size * counts[rank]);
        if (turn)
            MPI_Alltoallw(all, counts, bytes, types, one, takes, to, types, comm);
        else
            MPI_Alltoallv(all, counts, places, MPI_INT, one, takes, from, MPI_INT, comm);
        for (int r = 0; r < size; r++)
            for (int k = 0; k < counts[rank]; k++)
                right &= one[from[r] + k] == 100 * r + 10 * rank + k % 10;
    }
    expect(right, "alltoallv, alltoallw", n);
    free(one);
    free(all);
}

/* A matrix's column on rank 0, packed elsewhere: types differ from rank to rank. */
static void derived(MPI_Comm comm, int n) {
    double *a = calloc((size_t)n * 3, sizeof *a);
    MPI_Datatype column;
    MPI_Type_vector(n, 1, 3, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    for (int k = 0; !rank && k < n; k++) a[3 * k] = k + 0.5;
    if (rank)
        MPI_Bcast(a, n, MPI_DOUBLE, 0, comm);
    else
        MPI_Bcast(a, 1, column, 0, comm);
    int right = 1;
    for (int k = 0; k < n; k++) right &= a[rank ? k : 3 * k] == k + 0.5;
    expect(right, "bcast of a column", n);
    MPI_Type_free(&column);
    free(a);
}

static void larger(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int k = 0; k < *n; k++)
        if (((int *)in)[k] > ((int *)inout)[k]) ((int *)inout)[k] = ((int *)in)[k];
}
static void smaller(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int k = 0; k < *n; k++)
        if (((int *)in)[k] < ((int *)inout)[k]) ((int *)inout)[k] = ((int *)in)[k];
}

/* MPI may give the handle of a freed operation to the next one. */
static void own_operations(MPI_Comm comm) {
    for (int turn = 0; turn < 6; turn++) {
        MPI_Op op;
        int found = -1;
        MPI_Op_create(turn % 2 ? larger : smaller, 1, &op);
        for (int k = 0; k < 3; k++) MPI_Allreduce(&rank, &found, 1, MPI_INT, op, comm);
        expect(found == (turn % 2 ? size - 1 : 0), "own operation", turn);
        MPI_Op_free(&op);
    }
    struct {
        double value;
        int place;
    } mine = {rank % 2, rank}, best;
    MPI_Allreduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
    expect(best.place == (size > 1 ? 1 : 0), "maxloc", 1);
}

static void everything(MPI_Comm comm) {
    static const int sizes[] = {0, 1, 3, 64, 1000, 20000};
    for (int k = 0; k < 6; k++)
        for (int turn = 0; turn < 3; turn++) {
            reductions_double(comm, sizes[k]);
            reductions_int(comm, sizes[k]);
            reductions_short(comm, sizes[k]);
            reductions_char(comm, sizes[k]);
            blocks(comm, sizes[k]);
            own_sizes(comm, sizes[k] / 4, 0);
            own_sizes(comm, sizes[k] / 4, 3);
            MPI_Barrier(comm);
        }
    derived(comm, 17);
    own_operations(comm);
}

/* Communicators that are used and freed: their handles come back. */
static void come_and_go(void) {
    for (int turn = 0; turn < 12; turn++) {
        MPI_Comm child;
        int mine = rank, n, found;
        if (turn % 2)
            MPI_Comm_dup(MPI_COMM_WORLD, &child);
        else
            MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &child);
        MPI_Comm_size(child, &n);
        for (int k = 0; k < 4 * turn; k++) {
            MPI_Allreduce(&mine, &found, 1, MPI_INT, MPI_MAX, child);
            expect(found >= rank && found < size, "allreduce of a child", n);
        }
        MPI_Comm_free(&child);
        expect(child == MPI_COMM_NULL, "freed communicator", turn);
    }
}

/* A communicator that is freed while another one is: in a callback of its attributes. */
static int free_inner(MPI_Comm comm, int key, void *inner, void *extra) {
    (void)comm, (void)key, (void)extra;
    return MPI_Comm_free(inner);
}
static void nested(void) {
    int key, mine = rank, found;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_inner, &key, NULL);
    for (int turn = 0; turn < 4; turn++) {
        MPI_Comm outer, inner;
        MPI_Comm_dup(MPI_COMM_WORLD, &outer);
        MPI_Comm_dup(MPI_COMM_WORLD, &inner);
        MPI_Comm_set_attr(outer, key, &inner);
        for (int k = 0; k < 12; k++) {
            MPI_Allreduce(&mine, &found, 1, MPI_INT, MPI_MAX, inner);
            expect(found == size - 1, "allreduce of an inner communicator", turn);
        }
        MPI_Comm_free(&outer);
    }
    MPI_Comm_free_keyval(&key);
}

/* What few programs do. */
static void rare(void) {
    int data[64], taken[64], ones[64], from[64], to[64];
    MPI_Datatype types[64];
    for (int r = 0; r < size; r++) {
        data[r] = 10 * rank + r;
        ones[r] = 1;
        from[r] = (r - 1) * (int)sizeof(int);
        to[r] = r * (int)sizeof(int);
        types[r] = MPI_INT;
    }
    MPI_Op own = MPI_SUM;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    expect(MPI_Op_free(&own) && own == MPI_SUM, "to free MPI_SUM", 0);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Allreduce(&rank, taken, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(taken[0] == sum(), "MPI_SUM that was not freed", 0);
    if (size < 2) return; /* Open MPI may read elsewhere then */
    MPI_Alltoallw(data + 1, ones, from, types, taken, ones, to, types, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) expect(taken[r] == 10 * r + rank, "places before the buffer", r);
}

/* One rank gives the same memory, and no type, for nothing: MPICH takes it, and Open MPI the first. */
static void nothing_at_all(int null_types) {
    int zeros[64] = {0}, one[64] = {0}, other[64] = {0};
    MPI_Datatype types[64], nulls[64], same[64];
    for (int r = 0; r < size; r++) {
        types[r] = MPI_INT;
        same[r] = MPI_CHAR;
        nulls[r] = MPI_DATATYPE_NULL;
    }
    for (int k = 0; k < 10; k++) {
        void *to = rank ? other : one;
        MPI_Alltoallv(one, zeros, zeros, MPI_INT, to, zeros, zeros, rank ? MPI_INT : MPI_FLOAT,
                      MPI_COMM_WORLD);
        MPI_Alltoallw(one, zeros, zeros, types, to, zeros, zeros, same, MPI_COMM_WORLD);
        MPI_Reduce_scatter(one, to, zeros, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (!null_types) continue;
        MPI_Alltoallw(one, zeros, zeros, rank ? types : nulls, other, zeros, zeros,
                      rank ? types : nulls, MPI_COMM_WORLD);
        MPI_Bcast(one, 0, rank ? MPI_INT : MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
    }
}

/* Two groups, of one rank and of the others. Calls with large counts may be han's library's own. */
typedef int gatherv_large(const void *, int64_t, MPI_Datatype, void *, const int64_t *,
                          const intptr_t *, MPI_Datatype, int, MPI_Comm);
typedef int allgatherv_large(const void *, int64_t, MPI_Datatype, void *, const int64_t *,
                             const intptr_t *, MPI_Datatype, MPI_Comm);
static void two_groups(void) {
    MPI_Comm part, inter;
    int64_t counts[64];
    intptr_t places[64];
    int taken[64];
    gatherv_large *gatherv = (gatherv_large *)dlsym(RTLD_DEFAULT, "MPI_Gatherv_c");
    allgatherv_large *allgatherv = (allgatherv_large *)dlsym(RTLD_DEFAULT, "MPI_Allgatherv_c");
    if (size < 3 || !gatherv || !allgatherv) return;
    MPI_Comm_split(MPI_COMM_WORLD, rank > 0, rank, &part);
    MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, !rank, 0, &inter);
    const int others = rank ? 1 : size - 1, first = !rank;
    for (int r = 0; r < others; r++) {
        counts[r] = 1;
        places[r] = r;
    }
    for (int k = 0; k < 10; k++) {
        memset(taken, -1, sizeof taken);
        allgatherv(&rank, 1, MPI_INT, taken, counts, places, MPI_INT, inter);
        for (int r = 0; r < others; r++)
            expect(taken[r] == first + r, "allgatherv of two groups", r);
        memset(taken, -1, sizeof taken);
        gatherv(&rank, 1, MPI_INT, rank ? NULL : taken, rank ? NULL : counts, rank ? NULL : places,
                MPI_INT, rank ? 0 : MPI_ROOT, inter);
        for (int r = 0; !rank && r < others; r++)
            expect(taken[r] == 1 + r, "gatherv of two groups", r);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&part);
}

static int class_of(int code) {
    int class = 0;
    if (code) MPI_Error_class(code, &class);
    return class;
}

/* Calls that are wrong on this rank alone: MPI refuses them, and all goes on. */
static void errors(void) {
    MPI_Comm own;
    int a = 1, b, n = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    for (int k = 0; k < 20; k++) {
        if (k % 8 == rank) {
            expect(class_of(MPI_Bcast(&a, -1, MPI_INT, 0, own)) == MPI_ERR_COUNT, "a count", k);
            expect(class_of(MPI_Bcast(&a, 1, MPI_INT, size + 5, own)) == MPI_ERR_ROOT, "a root", k);
            expect(class_of(MPI_Bcast(&a, 1, MPI_DATATYPE_NULL, 0, own)) == MPI_ERR_TYPE, "a type",
                   k);
            expect(class_of(MPI_Allreduce(&a, &b, 1, MPI_INT, MPI_OP_NULL, own)) == MPI_ERR_OP,
                   "an op", k);
        }
        n += MPI_Allreduce(&a, &b, 1, MPI_INT, MPI_SUM, own);
        expect(!n && b == size, "a call after wrong ones", k);
    }
    MPI_Comm_free(&own);
}

/* An error where a broadcast is received; with more ranks a tree may wait for ever. */
static void cut(void) {
    MPI_Comm own;
    int a = 1, b, n = 0, three[3] = {1, 2, 3};
    if (size > 2) return;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    (void)MPI_Bcast(three, rank ? 1 : 3, MPI_INT, 0, own);
    for (int k = 0; k < 20; k++) {
        n += MPI_Allreduce(&a, &b, 1, MPI_INT, MPI_SUM, own);
        expect(!n && b == size, "a call after one that was cut", k);
    }
    MPI_Comm_free(&own);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    everything(MPI_COMM_WORLD);
    come_and_go();
    nested();
    rare();
    nothing_at_all(sizeof(MPI_Comm) == sizeof(int)); /* MPICH */
    two_groups();
    expect(!strcmp(setlocale(LC_ALL, NULL), "C"), "the locale", 0);
    if (argc > 1) errors();
    if (argc > 2) cut();
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (!rank) printf("wrong: %d\n", all);
    MPI_Finalize();
    return all != 0;
}
