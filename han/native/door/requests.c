/* Persistent requests. The handle of a program is that of an inactive request of MPI's, which MPI can test
 * and free. While han's run is under way, MPI's functions get the handle of its generalized request in
 * this one's place. */
#include "door/requests.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door/library.h"
#include "door/serving.h"

enum { CHAINS = 256 };

typedef struct kept {
    han_handle handle, active; /* the program's; MPI's of the run that is under way */
    _Atomic bool runs;
    void *persistent;
    struct kept *next;
} kept;

static kept *chains[CHAINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned alive; /* persistent requests */

bool han_door_has_persistent(void) { return atomic_load(&alive); }

static kept **chain_of(han_handle h) {
    const uint64_t mixed = (uint64_t)h * 0x9e3779b97f4a7c15u;
    return &chains[mixed >> 56];
}

static kept *find(han_handle h) {
    if (!atomic_load_explicit(&alive, memory_order_relaxed)) return NULL;
    pthread_mutex_lock(&lock);
    kept *k = *chain_of(h);
    while (k && k->handle != h) k = k->next;
    pthread_mutex_unlock(&lock);
    return k;
}

static han_handle get(const void *requests, int k, enum han_cells cells) {
    if (cells == HAN_FORTRAN_CELLS && han_wide())
        return HAN_MPIS_OF(intptr_t, Request_f2c, (int), ((const int *)requests)[k]);
    return han_wide() ? ((const intptr_t *)requests)[k] : ((const int *)requests)[k];
}

static void set(void *requests, int k, enum han_cells cells, han_handle h) {
    if (cells == HAN_FORTRAN_CELLS && han_wide())
        ((int *)requests)[k] = HAN_MPIS_OF(int, Request_c2f, (intptr_t), h);
    else if (han_wide())
        ((intptr_t *)requests)[k] = h;
    else
        ((int *)requests)[k] = (int)h;
}

void han_door_keep(const han_door_call *c) {
    set(c->request, 0, HAN_C_CELLS, c->made.handle);
    if (!c->made.persistent) return;
    kept *k = calloc(1, sizeof *k);
    if (!k) {
        fprintf(stderr, "han: no memory for a persistent request\n");
        abort();
    }
    k->handle = c->made.handle;
    k->persistent = c->made.persistent;
    pthread_mutex_lock(&lock);
    k->next = *chain_of(k->handle);
    *chain_of(k->handle) = k;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&alive, 1);
}

/* Complete a request of han's without MPI: whether it is complete. */
static bool complete(void *requests, int k, enum han_cells cells, bool block) {
    static han_handle null;
    if (!null) null = han_constant("ompi_request_null", 0x180, 0x2c000000);
    const han_handle h = get(requests, k, cells);
    kept *one = find(h);
    if ((one && !one->runs) || han_door_finish(one ? one->active : h, block) <= 0) return false;
    if (one)
        one->runs = false;
    else
        set(requests, k, cells, null);
    return true;
}

void han_door_finish_all(void *requests, int n, enum han_cells cells, bool block) {
    for (int k = 0; requests && k < n; k++) (void)complete(requests, k, cells, block);
}

void han_door_show(han_shown *s, void *requests, int n, enum han_cells cells) {
    s->n = 0;
    if (!atomic_load_explicit(&alive, memory_order_relaxed) || !requests || n < 1) return;
    s->requests = requests;
    s->cells = cells;
    s->all = n > HAN_FEW_REQUESTS ? malloc(sizeof *s->all * (size_t)n) : s->few;
    if (!s->all) {
        fprintf(stderr, "han: no memory for %d requests\n", n);
        abort();
    }
    s->n = n;
    for (int k = 0; k < n; k++) {
        kept *one = find(get(requests, k, cells));
        s->all[k] = one && one->runs ? one : NULL;
        if (s->all[k]) set(requests, k, cells, one->active);
    }
}

void han_door_hide(han_shown *s) {
    for (int k = 0; k < s->n; k++) {
        kept *one = s->all[k];
        if (!one) continue;
        one->runs = get(s->requests, k, s->cells) == one->active; /* else MPI has completed it */
        set(s->requests, k, s->cells, one->handle);
    }
    if (s->n > HAN_FEW_REQUESTS) free(s->all);
}

/* Start a request by MPI: one that is not han's, or to have an error told. */
static int start_by_mpi(intptr_t h) {
    int narrow = (int)h;
    return HAN_MPIS(Start, (void *), han_wide() ? (void *)&h : (void *)&narrow);
}

int han_door_start_all(void *requests, int n, enum han_cells cells) {
    int code = 0;
    if (!requests) return HAN_MPIS(Startall, (int, void *), n, requests);
    for (int k = 0; k < n && !code; k++) {
        const han_handle h = get(requests, k, cells);
        kept *one = find(h);
        if (!one || one->runs) {
            code = start_by_mpi(one ? one->active : h);
            continue;
        }
        code = han_door_start(one->persistent, &one->active);
        one->runs = !code;
    }
    return code;
}

void han_door_forget(void *request, enum han_cells cells) {
    kept *one = request ? find(get(request, 0, cells)) : NULL;
    if (!one) return;
    pthread_mutex_lock(&lock);
    kept **at = chain_of(one->handle);
    while (*at != one) at = &(*at)->next;
    *at = one->next;
    pthread_mutex_unlock(&lock);
    atomic_fetch_sub(&alive, 1);
    han_door_drop(one->persistent);
    free(one);
}

/* ---- MPI's functions -------------------------------------------------------------------------- */

#define LIST(...) __VA_ARGS__
/* BEFORE: what is done first. */
#define DEFINE(NAME, BEFORE, PARAMETERS, TYPES, ARGUMENTS, N) \
    HAN_PUBLIC int MPI_##NAME(PARAMETERS) {                   \
        han_shown s;                                          \
        BEFORE;                                               \
        han_door_show(&s, requests, N, HAN_C_CELLS);          \
        int code = HAN_MPIS(NAME, (TYPES), ARGUMENTS);        \
        han_door_hide(&s);                                    \
        return code;                                          \
    }
DEFINE(Wait, han_door_finish_all(requests, 1, HAN_C_CELLS, true),
       LIST(void *requests, void *status), LIST(void *, void *), LIST(requests, status), 1)
DEFINE(Test, han_door_finish_all(requests, 1, HAN_C_CELLS, false),
       LIST(void *requests, int *flag, void *status), LIST(void *, int *, void *),
       LIST(requests, flag, status), 1)
DEFINE(Waitall, han_door_finish_all(requests, n, HAN_C_CELLS, true),
       LIST(int n, void *requests, void *statuses), LIST(int, void *, void *),
       LIST(n, requests, statuses), n)
DEFINE(Testall, (void)0, LIST(int n, void *requests, int *flag, void *statuses),
       LIST(int, void *, int *, void *), LIST(n, requests, flag, statuses), n)
DEFINE(Waitany, (void)0, LIST(int n, void *requests, int *index, void *status),
       LIST(int, void *, int *, void *), LIST(n, requests, index, status), n)
DEFINE(Testany, (void)0, LIST(int n, void *requests, int *index, int *flag, void *status),
       LIST(int, void *, int *, int *, void *), LIST(n, requests, index, flag, status), n)
DEFINE(Waitsome, (void)0, LIST(int n, void *requests, int *m, int *indices, void *statuses),
       LIST(int, void *, int *, int *, void *), LIST(n, requests, m, indices, statuses), n)
DEFINE(Testsome, (void)0, LIST(int n, void *requests, int *m, int *indices, void *statuses),
       LIST(int, void *, int *, int *, void *), LIST(n, requests, m, indices, statuses), n)

HAN_PUBLIC int MPI_Request_get_status(intptr_t request, int *flag, void *status) {
    han_handle h = han_as_handle(request);
    kept *one = find(h);
    return HAN_MPIS(Request_get_status, (intptr_t, int *, void *),
                    one && one->runs ? one->active : h, flag, status);
}

void *han_door_copied(const void *requests, int n, enum han_cells cells) {
    if (!han_door_has_persistent() || !requests || n < 1) return NULL;
    const bool pointers = han_wide() && cells == HAN_C_CELLS;
    const size_t bytes = (size_t)n * (pointers ? sizeof(intptr_t) : sizeof(int));
    void *copy = malloc(bytes);
    if (copy) return memcpy(copy, requests, bytes);
    fprintf(stderr, "han: no memory for %d requests\n", n);
    abort();
}

/* Those of MPI 4.1, which an older library may not have: they only look at requests. */
#define DEFINE_LOOK(NAME, PARAMETERS, TYPES, ARGUMENTS)                       \
    HAN_PUBLIC int MPI_Request_get_status_##NAME(PARAMETERS) {                \
        static void *known;                                                   \
        if (!han_has(&known, "PMPI_Request_get_status_" #NAME))               \
            return han_missing("MPI_Request_get_status_" #NAME, han_world()); \
        han_shown s;                                                          \
        void *copy = han_door_copied(given, n, HAN_C_CELLS);                  \
        const void *requests = copy ? copy : given;                           \
        han_door_show(&s, copy, n, HAN_C_CELLS);                              \
        int code = ((int (*)(TYPES))known)(ARGUMENTS);                        \
        han_door_hide(&s);                                                    \
        free(copy);                                                           \
        return code;                                                          \
    }
DEFINE_LOOK(all, LIST(int n, const void *given, int *flag, void *statuses),
            LIST(int, const void *, int *, void *), LIST(n, requests, flag, statuses))
DEFINE_LOOK(any, LIST(int n, const void *given, int *index, int *flag, void *status),
            LIST(int, const void *, int *, int *, void *), LIST(n, requests, index, flag, status))
DEFINE_LOOK(some, LIST(int n, const void *given, int *m, int *indices, void *statuses),
            LIST(int, const void *, int *, int *, void *), LIST(n, requests, m, indices, statuses))

HAN_PUBLIC int MPI_Start(void *request) { return han_door_start_all(request, 1, HAN_C_CELLS); }

HAN_PUBLIC int MPI_Startall(int n, void *requests) {
    if (!atomic_load_explicit(&alive, memory_order_relaxed))
        return HAN_MPIS(Startall, (int, void *), n, requests);
    return han_door_start_all(requests, n, HAN_C_CELLS);
}

HAN_PUBLIC int MPI_Request_free(void *request) {
    han_door_forget(request, HAN_C_CELLS);
    return HAN_MPIS(Request_free, (void *), request);
}
