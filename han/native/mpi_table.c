#define _GNU_SOURCE
#include "mpi_table.h"

#include <dlfcn.h>
#include <string.h>

#include "program.h"

#define NAME(FUNCTION) #FUNCTION,
static const char *const NAMES[HAN_F_COUNT] = {HAN_MPI_FUNCTIONS(NAME)};

/* MPI's function behind a public name: PMPI_... */
static void *private_name(void *library, const char *name) {
    char own[64] = "P";
    if (strncmp(name, "MPI", 3) || strlen(name) + 2 > sizeof own) return NULL;
    strcat(own, name);
    void *p = dlsym(RTLD_DEFAULT, own);
    return p || !library ? p : dlsym(library, own);
}

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
    /* Behind the C door MPI's public names are han's own. */
    const bool behind = dlsym(RTLD_DEFAULT, HAN_DOOR_OPEN);
    for (int f = 0; f < HAN_F_COUNT; f++) {
        void *p = behind ? private_name(handle, NAMES[f]) : NULL;
        if (!p) p = dlsym(RTLD_DEFAULT, NAMES[f]);
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
    return CALL(MPI_Isend, (const void *, int, H, int, int, H, H *), b, n, (H)m->byte, peer, tag,
                (H)comm, (H *)req);
}
int han_irecv(const han_mpi *m, void *b, int n, int peer, int tag, han_handle comm, uint64_t *req) {
    return CALL(MPI_Irecv, (void *, int, H, int, int, H, H *), b, n, (H)m->byte, peer, tag, (H)comm,
                (H *)req);
}
static int test(const han_mpi *m, uint64_t *req, int *flag, any_status *status) {
    return CALL(MPI_Test, (H *, int *, void *), (H *)req, flag, status);
}
int han_test(const han_mpi *m, uint64_t *req, int *flag) {
    any_status status;
    return test(m, req, flag, &status);
}
int han_test_receive(const han_mpi *m, uint64_t *req, int *flag, int *n) {
    any_status status;
    int rc = test(m, req, flag, &status);
    if (rc || !*flag) return rc;
    return CALL(MPI_Get_count, (const void *, H, int *), &status, (H)m->byte, n);
}
int han_cancel(const han_mpi *m, uint64_t *req) { return CALL(MPI_Cancel, (H *), (H *)req); }
bool han_truncated(const han_mpi *m, int rc) {
    int class = 0;
    return !((int (*)(int, int *))m->fn[HAN_F_MPI_Error_class])(rc, &class) &&
           class == m->err_truncate;
}
bool han_mpi_finalized(const han_mpi *m) {
    int flag = 0;
    return ((int (*)(int *))m->fn[HAN_F_MPI_Finalized])(&flag) || flag;
}
int han_iprobe(const han_mpi *m, int source, int tag, han_handle comm, int *flag) {
    any_status status;
    return CALL(MPI_Iprobe, (int, int, H, int *, void *), source, tag, (H)comm, flag, &status);
}
int han_collective(const han_mpi *m, unsigned kind, const han_coll_args *a, uint64_t *req) {
    switch (kind) {
    case HAN_C_BCAST:
        return CALL(MPI_Ibcast, (void *, int, H, int, H, H *), a->recv, a->count, (H)a->dtype,
                    a->root, (H)a->comm, (H *)req);
    case HAN_C_REDUCE:
        return CALL(MPI_Ireduce, (const void *, void *, int, H, H, int, H, H *), a->send, a->recv,
                    a->count, (H)a->dtype, (H)a->op, a->root, (H)a->comm, (H *)req);
    case HAN_C_ALLREDUCE:
        return CALL(MPI_Iallreduce, (const void *, void *, int, H, H, H, H *), a->send, a->recv,
                    a->count, (H)a->dtype, (H)a->op, (H)a->comm, (H *)req);
    case HAN_C_BARRIER:
        return CALL(MPI_Ibarrier, (H, H *), (H)a->comm, (H *)req);
    case HAN_C_BCAST | HAN_C_BLOCKING:
        return CALL(MPI_Bcast, (void *, int, H, int, H), a->recv, a->count, (H)a->dtype, a->root,
                    (H)a->comm);
    case HAN_C_REDUCE | HAN_C_BLOCKING:
        return CALL(MPI_Reduce, (const void *, void *, int, H, H, int, H), a->send, a->recv,
                    a->count, (H)a->dtype, (H)a->op, a->root, (H)a->comm);
    case HAN_C_ALLREDUCE | HAN_C_BLOCKING:
        return CALL(MPI_Allreduce, (const void *, void *, int, H, H, H), a->send, a->recv, a->count,
                    (H)a->dtype, (H)a->op, (H)a->comm);
    default:
        return CALL(MPI_Barrier, (H), (H)a->comm);
    }
}
int han_reduce_local(const han_mpi *m, const void *in, void *inout, int n, han_handle dtype,
                     han_handle op) {
    return CALL(MPI_Reduce_local, (const void *, void *, int, H, H), in, inout, n, (H)dtype, (H)op);
}
int han_wait(const han_mpi *m, uint64_t *req) {
    any_status status;
    return CALL(MPI_Wait, (H *, void *), (H *)req, &status);
}
int han_grequest_start(const han_mpi *m, const han_grequest_fns *f, void *state, uint64_t *req) {
    if (m->fn[HAN_F_MPIX_Grequest_start])
        return CALL(MPIX_Grequest_start,
                    (query_fn, free_fn, cancel_fn, poll_fn, wait_fn, void *, H *), f->query,
                    f->free, f->cancel, f->poll, f->wait, state, (H *)req);
    return CALL(MPI_Grequest_start, (query_fn, free_fn, cancel_fn, void *, H *), f->query, f->free,
                f->cancel, state, (H *)req);
}
int han_grequest_complete(const han_mpi *m, uint64_t req) {
    return CALL(MPI_Grequest_complete, (H), (H)req);
}
int han_type_envelope(const han_mpi *m, han_handle type, han_envelope *e) {
    int n[3] = {0}, rc;
    *e = (han_envelope){0};
    if (m->fn[HAN_F_MPI_Type_get_envelope_c])
        return CALL(MPI_Type_get_envelope_c, (H, int64_t *, int64_t *, int64_t *, int64_t *, int *),
                    (H)type, &e->integers, &e->addresses, &e->counts, &e->types, &e->combiner);
    rc = CALL(MPI_Type_get_envelope, (H, int *, int *, int *, int *), (H)type, &n[0], &n[1], &n[2],
              &e->combiner);
    e->integers = n[0];
    e->addresses = n[1];
    e->types = n[2];
    return rc;
}
enum han_combiner han_combiner_of(const han_mpi *m, int combiner) {
    int k = 0;
    while (k < HAN_COMBINERS && m->combiners[k] != combiner) k++;
    return (enum han_combiner)k;
}
/* Counts are MPI's large ones, which stand for the integers in front of an order, and for addresses. */
static void in_order(const han_envelope *e, const int *integers, const int64_t *addresses,
                     const int64_t *counts, int64_t *numbers) {
    int64_t before = e->counts && e->integers ? 1 : e->integers;
    for (int64_t k = 0; k < before; k++) *numbers++ = integers[k];
    for (int64_t k = 0; k < e->counts; k++) *numbers++ = counts[k];
    for (int64_t k = before; k < e->integers; k++) *numbers++ = integers[k];
    for (int64_t k = 0; k < e->addresses; k++) *numbers++ = addresses[k];
}
int han_type_contents(const han_mpi *m, han_handle type, const han_envelope *e, int64_t *numbers,
                      han_handle *inner) {
    int integers[HAN_TYPE_NUMBERS], rc;
    int64_t addresses[HAN_TYPE_NUMBERS], counts[HAN_TYPE_NUMBERS];
    union {
        int narrow[HAN_TYPE_NUMBERS];
        void *wide[HAN_TYPE_NUMBERS];
    } handles;
    if (e->types > HAN_TYPE_NUMBERS || e->integers + e->addresses + e->counts > HAN_TYPE_NUMBERS)
        return -1;
    if (m->fn[HAN_F_MPI_Type_get_contents_c])
        rc = CALL(MPI_Type_get_contents_c,
                  (H, int64_t, int64_t, int64_t, int64_t, int *, int64_t *, int64_t *, H *),
                  (H)type, e->integers, e->addresses, e->counts, e->types, integers, addresses,
                  counts, (H *)&handles);
    else
        rc = CALL(MPI_Type_get_contents, (H, int, int, int, int *, int64_t *, H *), (H)type,
                  (int)e->integers, (int)e->addresses, (int)e->types, integers, addresses,
                  (H *)&handles);
    if (rc) return rc;
    in_order(e, integers, addresses, counts, numbers);
    for (int64_t k = 0; k < e->types; k++)
        inner[k] = m->wide ? (han_handle)handles.wide[k] : handles.narrow[k];
    return 0;
}
int han_type_dup(const han_mpi *m, han_handle type, han_handle *made) {
    union {
        int narrow;
        intptr_t wide;
    } h;
    int rc = CALL(MPI_Type_dup, (H, H *), (H)type, (H *)&h);
    if (!rc) *made = m->wide ? h.wide : h.narrow;
    return rc;
}
static int copy_no_attribute(intptr_t type, int key, void *extra, void *value, void *out,
                             int *flag) {
    (void)type, (void)key, (void)extra, (void)value, (void)out;
    *flag = 0;
    return 0;
}
int han_type_key(const han_mpi *m, han_drop_attribute *drop, int *key) {
    han_anyfn make = m->fn[HAN_F_MPI_Type_create_keyval];
    return ((int (*)(void *, void *, int *, void *))make)((void *)copy_no_attribute, (void *)drop,
                                                          key, NULL);
}
int han_type_set(const han_mpi *m, han_handle type, int key, void *value) {
    return CALL(MPI_Type_set_attr, (H, int, void *), (H)type, key, value);
}
int han_type_free(const han_mpi *m, han_handle type) {
    uint64_t handle = (uint64_t)type;
    return CALL(MPI_Type_free, (H *), (H *)&handle);
}
int han_type_drop(const han_mpi *m, han_handle type) {
    han_envelope e;
    int rc = han_type_envelope(m, type, &e);
    bool made = !rc && e.types && han_combiner_of(m, e.combiner) < HAN_COMBINERS;
    return made ? han_type_free(m, type) : rc;
}
int han_type_extent(const han_mpi *m, han_handle type, int64_t *extent) {
    intptr_t bound[2];
    int rc = CALL(MPI_Type_get_extent, (H, intptr_t *, intptr_t *), (H)type, &bound[0], &bound[1]);
    *extent = bound[1];
    return rc;
}
int han_type_facts_of(const han_mpi *m, han_handle type, han_type_facts *f) {
    int size = 0;
    intptr_t bound[2] = {0}, data[2] = {0}; /* where each begins, and its extent */
    int rc = CALL(MPI_Type_size, (H, int *), (H)type, &size);
    if (!rc)
        rc = CALL(MPI_Type_get_extent, (H, intptr_t *, intptr_t *), (H)type, &bound[0], &bound[1]);
    if (!rc)
        rc = CALL(MPI_Type_get_true_extent, (H, intptr_t *, intptr_t *), (H)type, &data[0],
                  &data[1]);
    han_envelope e = {0};
    if (!rc) rc = han_type_envelope(m, type, &e);
    *f = (han_type_facts){size, bound[1], data[0], data[0] + data[1], e.types != 0};
    return rc;
}
int han_pack(const han_mpi *m, const void *data, int count, han_handle type, void *packed, int n,
             han_handle comm) {
    int position = 0;
    return CALL(MPI_Pack, (const void *, int, H, void *, int, int *, H), data, count, (H)type,
                packed, n, &position, (H)comm);
}
int han_unpack(const han_mpi *m, const void *packed, int n, void *data, int count, han_handle type,
               han_handle comm) {
    int position = 0;
    return CALL(MPI_Unpack, (const void *, int, int *, void *, int, H, H), packed, n, &position,
                data, count, (H)type, (H)comm);
}
static void put(void *status, int at, int value) {
    memcpy((char *)status + at, &value, sizeof value);
}
void han_status_empty(const han_mpi *m, const han_status_fields *f, void *status) {
    put(status, f->source, f->any_source);
    put(status, f->tag, f->any_tag);
    put(status, f->error, 0);
    (void)CALL(MPI_Status_set_elements, (void *, H, int), status, (H)m->byte, 0);
    (void)((int (*)(void *, int))m->fn[HAN_F_MPI_Status_set_cancelled])(status, 0);
}
bool han_progress_register(const han_mpi *m, int (*callback)(void)) {
    han_anyfn f = m->fn[HAN_F_opal_progress_register];
    return f && !((int (*)(int (*)(void)))f)(callback);
}
