#define _GNU_SOURCE
#include "mpi_table.h"

#include <dlfcn.h>
#include <string.h>

#include "program.h"

static const char *const NAMES[HAN_F_COUNT] = {
    [HAN_F_ISEND] = "MPI_Isend",
    [HAN_F_IRECV] = "MPI_Irecv",
    [HAN_F_TEST] = "MPI_Test",
    [HAN_F_GET_COUNT] = "MPI_Get_count",
    [HAN_F_IPROBE] = "MPI_Iprobe",
    [HAN_F_CANCEL] = "MPI_Cancel",
    [HAN_F_FINALIZED] = "MPI_Finalized",
    [HAN_F_IBCAST] = "MPI_Ibcast",
    [HAN_F_IREDUCE] = "MPI_Ireduce",
    [HAN_F_IALLREDUCE] = "MPI_Iallreduce",
    [HAN_F_IBARRIER] = "MPI_Ibarrier",
    [HAN_F_BCAST] = "MPI_Bcast",
    [HAN_F_REDUCE] = "MPI_Reduce",
    [HAN_F_ALLREDUCE] = "MPI_Allreduce",
    [HAN_F_BARRIER] = "MPI_Barrier",
    [HAN_F_REDUCE_LOCAL] = "MPI_Reduce_local",
    [HAN_F_ERROR_CLASS] = "MPI_Error_class",
    [HAN_F_WAIT] = "MPI_Wait",
    [HAN_F_GREQUEST_START] = "MPI_Grequest_start",
    [HAN_F_GREQUEST_COMPLETE] = "MPI_Grequest_complete",
    [HAN_F_STATUS_SET_ELEMENTS] = "MPI_Status_set_elements",
    [HAN_F_STATUS_SET_CANCELLED] = "MPI_Status_set_cancelled",
    [HAN_F_TYPE_SIZE] = "MPI_Type_size",
    [HAN_F_TYPE_EXTENT] = "MPI_Type_get_extent",
    [HAN_F_TYPE_TRUE_EXTENT] = "MPI_Type_get_true_extent",
    [HAN_F_TYPE_ENVELOPE] = "MPI_Type_get_envelope",
    [HAN_F_PACK] = "MPI_Pack",
    [HAN_F_UNPACK] = "MPI_Unpack",
    [HAN_F_GREQUEST_POLLED] = "MPIX_Grequest_start",
    [HAN_F_PROGRESS_REGISTER] = "opal_progress_register",
    [HAN_F_TYPE_ENVELOPE_LARGE] = "MPI_Type_get_envelope_c",
};

const char *han_mpi_load(han_mpi *mpi, const char *library) {
    static han_anyfn known[HAN_F_COUNT]; /* of the library `loaded`; Python's lock guards both */
    static char *loaded;
    if (loaded && !strcmp(loaded, library)) {
        memcpy(mpi->fn, known, sizeof known);
        return NULL;
    }
    /* mpi4py loads libmpi with RTLD_LOCAL: its symbols are visible through mpi4py's module only. */
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    const char *missing = NULL;
    for (int f = 0; f < HAN_F_COUNT; f++) {
        void *p = dlsym(RTLD_DEFAULT, NAMES[f]);
        if (!p && handle) p = dlsym(handle, NAMES[f]);
        if (!p && !missing && f < HAN_F_NEEDED) missing = NAMES[f];
        *(void **)&mpi->fn[f] = p;
    }
    if (handle) dlclose(handle); /* the module itself keeps the library loaded */
    if (!missing && !loaded) {
        memcpy(known, mpi->fn, sizeof known);
        loaded = strdup(library);
    }
    return missing;
}

/* MPI_STATUS_IGNORE differs between libraries; a status of any of them fits in this. */
typedef struct {
    _Alignas(16) char bytes[128];
} any_status;

typedef int (*query_fn)(void *, void *);
typedef int (*free_fn)(void *);
typedef int (*cancel_fn)(void *, int);
typedef int (*poll_fn)(void *, void *);
typedef int (*wait_fn)(int, void **, double, void *);

/* Call a function of the library with parameters of these types, of which H is that of handles. */
#define CALL_WITH(HANDLE, NAME, TYPES, ...)               \
    ({                                                    \
        typedef HANDLE H;                                 \
        ((int(*) TYPES)m->fn[HAN_F_##NAME])(__VA_ARGS__); \
    })
#define CALL(...) (m->wide ? CALL_WITH(void *, __VA_ARGS__) : CALL_WITH(int, __VA_ARGS__))

int han_isend(const han_mpi *m, const void *b, int n, int peer, int tag, han_handle comm,
              uint64_t *req) {
    return CALL(ISEND, (const void *, int, H, int, int, H, H *), b, n, (H)m->byte, peer, tag,
                (H)comm, (H *)req);
}
int han_irecv(const han_mpi *m, void *b, int n, int peer, int tag, han_handle comm, uint64_t *req) {
    return CALL(IRECV, (void *, int, H, int, int, H, H *), b, n, (H)m->byte, peer, tag, (H)comm,
                (H *)req);
}
static int test(const han_mpi *m, uint64_t *req, int *flag, any_status *status) {
    return CALL(TEST, (H *, int *, void *), (H *)req, flag, status);
}
int han_test(const han_mpi *m, uint64_t *req, int *flag) {
    any_status status;
    return test(m, req, flag, &status);
}
int han_test_receive(const han_mpi *m, uint64_t *req, int *flag, int *n) {
    any_status status;
    int rc = test(m, req, flag, &status);
    if (rc || !*flag) return rc;
    return CALL(GET_COUNT, (const void *, H, int *), &status, (H)m->byte, n);
}
int han_cancel(const han_mpi *m, uint64_t *req) { return CALL(CANCEL, (H *), (H *)req); }
bool han_truncated(const han_mpi *m, int rc) {
    int class = 0;
    return !((int (*)(int, int *))m->fn[HAN_F_ERROR_CLASS])(rc, &class) && class == m->err_truncate;
}
bool han_mpi_finalized(const han_mpi *m) {
    int flag = 0;
    return ((int (*)(int *))m->fn[HAN_F_FINALIZED])(&flag) || flag;
}
int han_iprobe(const han_mpi *m, int source, int tag, han_handle comm, int *flag) {
    any_status status;
    return CALL(IPROBE, (int, int, H, int *, void *), source, tag, (H)comm, flag, &status);
}
int han_collective(const han_mpi *m, unsigned kind, const han_coll_args *a, uint64_t *req) {
    switch (kind) {
    case HAN_C_BCAST:
        return CALL(IBCAST, (void *, int, H, int, H, H *), a->recv, a->count, (H)a->dtype, a->root,
                    (H)a->comm, (H *)req);
    case HAN_C_REDUCE:
        return CALL(IREDUCE, (const void *, void *, int, H, H, int, H, H *), a->send, a->recv,
                    a->count, (H)a->dtype, (H)a->op, a->root, (H)a->comm, (H *)req);
    case HAN_C_ALLREDUCE:
        return CALL(IALLREDUCE, (const void *, void *, int, H, H, H, H *), a->send, a->recv,
                    a->count, (H)a->dtype, (H)a->op, (H)a->comm, (H *)req);
    case HAN_C_BARRIER:
        return CALL(IBARRIER, (H, H *), (H)a->comm, (H *)req);
    case HAN_C_BCAST | HAN_C_BLOCKING:
        return CALL(BCAST, (void *, int, H, int, H), a->recv, a->count, (H)a->dtype, a->root,
                    (H)a->comm);
    case HAN_C_REDUCE | HAN_C_BLOCKING:
        return CALL(REDUCE, (const void *, void *, int, H, H, int, H), a->send, a->recv, a->count,
                    (H)a->dtype, (H)a->op, a->root, (H)a->comm);
    case HAN_C_ALLREDUCE | HAN_C_BLOCKING:
        return CALL(ALLREDUCE, (const void *, void *, int, H, H, H), a->send, a->recv, a->count,
                    (H)a->dtype, (H)a->op, (H)a->comm);
    default:
        return CALL(BARRIER, (H), (H)a->comm);
    }
}
int han_reduce_local(const han_mpi *m, const void *in, void *inout, int n, han_handle dtype,
                     han_handle op) {
    return CALL(REDUCE_LOCAL, (const void *, void *, int, H, H), in, inout, n, (H)dtype, (H)op);
}
int han_wait(const han_mpi *m, uint64_t *req) {
    any_status status;
    return CALL(WAIT, (H *, void *), (H *)req, &status);
}
int han_grequest_start(const han_mpi *m, const han_grequest_fns *f, void *state, uint64_t *req) {
    if (m->fn[HAN_F_GREQUEST_POLLED])
        return CALL(GREQUEST_POLLED, (query_fn, free_fn, cancel_fn, poll_fn, wait_fn, void *, H *),
                    f->query, f->free, f->cancel, f->poll, f->wait, state, (H *)req);
    return CALL(GREQUEST_START, (query_fn, free_fn, cancel_fn, void *, H *), f->query, f->free,
                f->cancel, state, (H *)req);
}
int han_grequest_complete(const han_mpi *m, uint64_t req) {
    return CALL(GREQUEST_COMPLETE, (H), (H)req);
}
/* Whether a type is made of other types. */
static int find_derived(const han_mpi *m, han_handle type, bool *derived) {
    int n[3] = {0}, combiner, rc;
    int64_t large[4] = {0};
    if (m->fn[HAN_F_TYPE_ENVELOPE_LARGE])
        rc = CALL(TYPE_ENVELOPE_LARGE, (H, int64_t *, int64_t *, int64_t *, int64_t *, int *),
                  (H)type, &large[0], &large[1], &large[2], &large[3], &combiner);
    else
        rc = CALL(TYPE_ENVELOPE, (H, int *, int *, int *, int *), (H)type, &n[0], &n[1], &n[2],
                  &combiner);
    *derived = n[2] || large[3];
    return rc;
}
int han_type_facts_of(const han_mpi *m, han_handle type, han_type_facts *f) {
    int size = 0;
    intptr_t bound[2] = {0}, data[2] = {0}; /* where each begins, and its extent */
    int rc = CALL(TYPE_SIZE, (H, int *), (H)type, &size);
    if (!rc) rc = CALL(TYPE_EXTENT, (H, intptr_t *, intptr_t *), (H)type, &bound[0], &bound[1]);
    if (!rc) rc = CALL(TYPE_TRUE_EXTENT, (H, intptr_t *, intptr_t *), (H)type, &data[0], &data[1]);
    *f = (han_type_facts){size, bound[1], data[0], data[0] + data[1], false};
    return rc ? rc : find_derived(m, type, &f->derived);
}
int han_pack(const han_mpi *m, const void *data, int count, han_handle type, void *packed, int n,
             han_handle comm) {
    int position = 0;
    return CALL(PACK, (const void *, int, H, void *, int, int *, H), data, count, (H)type, packed,
                n, &position, (H)comm);
}
int han_unpack(const han_mpi *m, const void *packed, int n, void *data, int count, han_handle type,
               han_handle comm) {
    int position = 0;
    return CALL(UNPACK, (const void *, int, int *, void *, int, H, H), packed, n, &position, data,
                count, (H)type, (H)comm);
}
static void put(void *status, int at, int value) {
    memcpy((char *)status + at, &value, sizeof value);
}
void han_status_empty(const han_mpi *m, const han_status_fields *f, void *status) {
    put(status, f->source, f->any_source);
    put(status, f->tag, f->any_tag);
    put(status, f->error, 0);
    (void)CALL(STATUS_SET_ELEMENTS, (void *, H, int), status, (H)m->byte, 0);
    (void)((int (*)(void *, int))m->fn[HAN_F_STATUS_SET_CANCELLED])(status, 0);
}
bool han_progress_register(const han_mpi *m, int (*callback)(void)) {
    han_anyfn f = m->fn[HAN_F_PROGRESS_REGISTER];
    return f && !((int (*)(int (*)(void)))f)(callback);
}
