#define _GNU_SOURCE
#include "mpi_table.h"

#include <dlfcn.h>
#include <string.h>

#include "program.h"

static const char *const NAMES[HAN_F_COUNT] = {
    "MPI_Isend",
    "MPI_Irecv",
    "MPI_Test",
    "MPI_Get_count",
    "MPI_Iprobe",
    "MPI_Cancel",
    "MPI_Finalized",
    "MPI_Ibcast",
    "MPI_Ireduce",
    "MPI_Iallreduce",
    "MPI_Ibarrier",
    "MPI_Bcast",
    "MPI_Reduce",
    "MPI_Allreduce",
    "MPI_Barrier",
    "MPI_Reduce_local",
    "MPI_Error_class",
    "MPI_Wait",
    "MPI_Grequest_start",
    "MPI_Grequest_complete",
    "MPI_Status_set_elements",
    "MPI_Status_set_cancelled",
    "MPI_Type_size",
    "MPI_Type_get_extent",
    "MPI_Type_get_true_extent",
    "MPI_Type_get_envelope",
    "MPI_Pack",
    "MPI_Unpack",
    "MPIX_Grequest_start",
    "opal_progress_register",
    "MPI_Type_get_envelope_c",
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

/* Define one set of calls for a type of handle; CALL chooses a set by mpi->wide. */
#define DEFINE_CALLS(H, S)                                                                         \
    static int isend_##S(const han_mpi *m, const void *b, int n, int peer, int tag,                \
                         han_handle comm, uint64_t *req) {                                         \
        return ((int (*)(const void *, int, H, int, int, H, H *))m->fn[HAN_F_ISEND])(              \
            b, n, (H)m->byte, peer, tag, (H)comm, (H *)req);                                       \
    }                                                                                              \
    static int irecv_##S(const han_mpi *m, void *b, int n, int peer, int tag, han_handle comm,     \
                         uint64_t *req) {                                                          \
        return ((int (*)(void *, int, H, int, int, H, H *))m->fn[HAN_F_IRECV])(                    \
            b, n, (H)m->byte, peer, tag, (H)comm, (H *)req);                                       \
    }                                                                                              \
    static int test_##S(const han_mpi *m, uint64_t *req, int *flag) {                              \
        any_status status;                                                                         \
        return ((int (*)(H *, int *, void *))m->fn[HAN_F_TEST])((H *)req, flag, &status);          \
    }                                                                                              \
    static int test_receive_##S(const han_mpi *m, uint64_t *req, int *flag, int *n) {              \
        any_status status;                                                                         \
        int rc = ((int (*)(H *, int *, void *))m->fn[HAN_F_TEST])((H *)req, flag, &status);        \
        if (rc || !*flag) return rc;                                                               \
        return ((int (*)(const void *, H, int *))m->fn[HAN_F_GET_COUNT])(&status, (H)m->byte, n);  \
    }                                                                                              \
    static int cancel_##S(const han_mpi *m, uint64_t *req) {                                       \
        return ((int (*)(H *))m->fn[HAN_F_CANCEL])((H *)req);                                      \
    }                                                                                              \
    static int iprobe_##S(const han_mpi *m, int source, int tag, han_handle comm, int *flag) {     \
        any_status status;                                                                         \
        return ((int (*)(int, int, H, int *, void *))m->fn[HAN_F_IPROBE])(source, tag, (H)comm,    \
                                                                          flag, &status);          \
    }                                                                                              \
    static int reduce_local_##S(const han_mpi *m, const void *in, void *inout, int n,              \
                                han_handle dtype, han_handle op) {                                 \
        return ((int (*)(const void *, void *, int, H, H))m->fn[HAN_F_REDUCE_LOCAL])(              \
            in, inout, n, (H)dtype, (H)op);                                                        \
    }                                                                                              \
    static int wait_##S(const han_mpi *m, uint64_t *req) {                                         \
        any_status status;                                                                         \
        return ((int (*)(H *, void *))m->fn[HAN_F_WAIT])((H *)req, &status);                       \
    }                                                                                              \
    static int greq_start_##S(const han_mpi *m, const han_grequest_fns *f, void *state,            \
                              uint64_t *req) {                                                     \
        if (m->fn[HAN_F_GREQUEST_POLLED])                                                          \
            return ((int (*)(query_fn, free_fn, cancel_fn, poll_fn, wait_fn, void *,               \
                             H *))m->fn[HAN_F_GREQUEST_POLLED])(                                   \
                f->query, f->free, f->cancel, f->poll, f->wait, state, (H *)req);                  \
        return ((int (*)(query_fn, free_fn, cancel_fn, void *, H *))m->fn[HAN_F_GREQUEST_START])(  \
            f->query, f->free, f->cancel, state, (H *)req);                                        \
    }                                                                                              \
    static int greq_complete_##S(const han_mpi *m, uint64_t req) {                                 \
        return ((int (*)(H))m->fn[HAN_F_GREQUEST_COMPLETE])((H)req);                               \
    }                                                                                              \
    static void status_empty_##S(const han_mpi *m, void *status) {                                 \
        (void)((int (*)(void *, H, int))m->fn[HAN_F_STATUS_SET_ELEMENTS])(status, (H)m->byte, 0);  \
        (void)((int (*)(void *, int))m->fn[HAN_F_STATUS_SET_CANCELLED])(status, 0);                \
    }                                                                                              \
    /* A derived type is made of other types. */                                                   \
    static int is_derived_##S(const han_mpi *m, H t, bool *derived) {                              \
        int n[3] = {0}, combiner;                                                                  \
        int64_t large[4] = {0};                                                                    \
        han_anyfn any = m->fn[HAN_F_TYPE_ENVELOPE_LARGE], old = m->fn[HAN_F_TYPE_ENVELOPE];        \
        int rc = any ? ((int (*)(H, int64_t *, int64_t *, int64_t *, int64_t *, int *))any)(       \
                           t, &large[0], &large[1], &large[2], &large[3], &combiner)               \
                     : ((int (*)(H, int *, int *, int *, int *))old)(t, &n[0], &n[1], &n[2],       \
                                                                     &combiner);                   \
        *derived = n[2] || large[3];                                                               \
        return rc;                                                                                 \
    }                                                                                              \
    static int type_facts_##S(const han_mpi *m, han_handle h, han_type_facts *f) {                 \
        int size = 0;                                                                              \
        intptr_t bound[2] = {0}, data[2] = {0}; /* the lower bound and the extent */               \
        H t = (H)h;                                                                                \
        int rc = ((int (*)(H, int *))m->fn[HAN_F_TYPE_SIZE])(t, &size);                            \
        if (!rc)                                                                                   \
            rc = ((int (*)(H, intptr_t *, intptr_t *))m->fn[HAN_F_TYPE_EXTENT])(t, &bound[0],      \
                                                                                &bound[1]);        \
        if (!rc)                                                                                   \
            rc = ((int (*)(H, intptr_t *, intptr_t *))m->fn[HAN_F_TYPE_TRUE_EXTENT])(t, &data[0],  \
                                                                                     &data[1]);    \
        *f = (han_type_facts){size, bound[1], data[0], data[0] + data[1], false};                  \
        return rc ? rc : is_derived_##S(m, t, &f->derived);                                        \
    }                                                                                              \
    static int pack_##S(const han_mpi *m, const void *data, int count, han_handle t, void *packed, \
                        int n, han_handle comm) {                                                  \
        int position = 0;                                                                          \
        return ((int (*)(const void *, int, H, void *, int, int *, H))m->fn[HAN_F_PACK])(          \
            data, count, (H)t, packed, n, &position, (H)comm);                                     \
    }                                                                                              \
    static int unpack_##S(const han_mpi *m, const void *packed, int n, void *data, int count,      \
                          han_handle t, han_handle comm) {                                         \
        int position = 0;                                                                          \
        return ((int (*)(const void *, int, int *, void *, int, H, H))m->fn[HAN_F_UNPACK])(        \
            packed, n, &position, data, count, (H)t, (H)comm);                                     \
    }                                                                                              \
    static int coll_##S(const han_mpi *m, unsigned kind, const han_coll_args *a, uint64_t *req) {  \
        H t = (H)a->dtype, o = (H)a->op, c = (H)a->comm;                                           \
        H *r = (H *)req;                                                                           \
        switch (kind) {                                                                            \
        case HAN_C_BCAST:                                                                          \
            return ((int (*)(void *, int, H, int, H, H *))m->fn[HAN_F_IBCAST])(a->recv, a->count,  \
                                                                               t, a->root, c, r);  \
        case HAN_C_REDUCE:                                                                         \
            return ((int (*)(const void *, void *, int, H, H, int, H, H *))m->fn[HAN_F_IREDUCE])(  \
                a->send, a->recv, a->count, t, o, a->root, c, r);                                  \
        case HAN_C_ALLREDUCE:                                                                      \
            return ((int (*)(const void *, void *, int, H, H, H, H *))m->fn[HAN_F_IALLREDUCE])(    \
                a->send, a->recv, a->count, t, o, c, r);                                           \
        case HAN_C_BARRIER:                                                                        \
            return ((int (*)(H, H *))m->fn[HAN_F_IBARRIER])(c, r);                                 \
        case HAN_C_BCAST | HAN_C_BLOCKING:                                                         \
            return ((int (*)(void *, int, H, int, H))m->fn[HAN_F_BCAST])(a->recv, a->count, t,     \
                                                                         a->root, c);              \
        case HAN_C_REDUCE | HAN_C_BLOCKING:                                                        \
            return ((int (*)(const void *, void *, int, H, H, int, H))m->fn[HAN_F_REDUCE])(        \
                a->send, a->recv, a->count, t, o, a->root, c);                                     \
        case HAN_C_ALLREDUCE | HAN_C_BLOCKING:                                                     \
            return ((int (*)(const void *, void *, int, H, H, H))m->fn[HAN_F_ALLREDUCE])(          \
                a->send, a->recv, a->count, t, o, c);                                              \
        default:                                                                                   \
            return ((int (*)(H))m->fn[HAN_F_BARRIER])(c);                                          \
        }                                                                                          \
    }

typedef int narrow_handle;
typedef void *wide_handle;
DEFINE_CALLS(narrow_handle, narrow)
DEFINE_CALLS(wide_handle, wide)

#define CALL(NAME, ...) (m->wide ? NAME##_wide(__VA_ARGS__) : NAME##_narrow(__VA_ARGS__))

int han_isend(const han_mpi *m, const void *b, int n, int peer, int tag, han_handle comm,
              uint64_t *req) {
    return CALL(isend, m, b, n, peer, tag, comm, req);
}
int han_irecv(const han_mpi *m, void *b, int n, int peer, int tag, han_handle comm, uint64_t *req) {
    return CALL(irecv, m, b, n, peer, tag, comm, req);
}
int han_test(const han_mpi *m, uint64_t *req, int *flag) { return CALL(test, m, req, flag); }
int han_test_receive(const han_mpi *m, uint64_t *req, int *flag, int *n) {
    return CALL(test_receive, m, req, flag, n);
}
int han_cancel(const han_mpi *m, uint64_t *req) { return CALL(cancel, m, req); }
bool han_truncated(const han_mpi *m, int rc) {
    int class = 0;
    return !((int (*)(int, int *))m->fn[HAN_F_ERROR_CLASS])(rc, &class) && class == m->err_truncate;
}
bool han_mpi_finalized(const han_mpi *m) {
    int flag = 0;
    return ((int (*)(int *))m->fn[HAN_F_FINALIZED])(&flag) || flag;
}
int han_iprobe(const han_mpi *m, int source, int tag, han_handle comm, int *flag) {
    return CALL(iprobe, m, source, tag, comm, flag);
}
int han_collective(const han_mpi *m, unsigned kind, const han_coll_args *a, uint64_t *req) {
    return CALL(coll, m, kind, a, req);
}
int han_reduce_local(const han_mpi *m, const void *in, void *inout, int n, han_handle dtype,
                     han_handle op) {
    return CALL(reduce_local, m, in, inout, n, dtype, op);
}
int han_wait(const han_mpi *m, uint64_t *req) { return CALL(wait, m, req); }
int han_grequest_start(const han_mpi *m, const han_grequest_fns *f, void *state, uint64_t *req) {
    return CALL(greq_start, m, f, state, req);
}
int han_grequest_complete(const han_mpi *m, uint64_t req) { return CALL(greq_complete, m, req); }
int han_type_facts_of(const han_mpi *m, han_handle type, han_type_facts *facts) {
    return CALL(type_facts, m, type, facts);
}
int han_pack(const han_mpi *m, const void *data, int count, han_handle type, void *packed, int n,
             han_handle comm) {
    return CALL(pack, m, data, count, type, packed, n, comm);
}
int han_unpack(const han_mpi *m, const void *packed, int n, void *data, int count, han_handle type,
               han_handle comm) {
    return CALL(unpack, m, packed, n, data, count, type, comm);
}
static void put(void *status, int at, int value) {
    memcpy((char *)status + at, &value, sizeof value);
}
void han_status_empty(const han_mpi *m, const han_status_fields *f, void *status) {
    put(status, f->source, f->any_source);
    put(status, f->tag, f->any_tag);
    put(status, f->error, 0);
    CALL(status_empty, m, status);
}
bool han_progress_register(const han_mpi *m, int (*callback)(void)) {
    han_anyfn f = m->fn[HAN_F_PROGRESS_REGISTER];
    return f && !((int (*)(int (*)(void)))f)(callback);
}
