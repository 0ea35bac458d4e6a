/* Which calls of the program han serves. MPI keeps what the door knows of a communicator as an
 * attribute, so that a handle that MPI gives out again has none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door/inside.h"

/* han serves a communicator from this collective on: all ranks count alike. Those before cost less
 * than what it takes to set han up. */
enum { SETTLED = 8 };

typedef struct {
    unsigned calls; /* collectives so far, until han serves it */
    bool alone;     /* one rank, or an inter-communicator */
    bool served;
    void *look_up; /* han's, for repeated calls */
} known_comm;

static const han_door_api *api;
static _Thread_local int inside; /* han itself calls MPI */
static bool shut;                /* han cannot be had, or MPI is being finalized */
static bool keyed;               /* there is a key */
static int keyval;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

HAN_PUBLIC void han_door_open(const han_door_api *given) { api = given; }

void *han_mpis(void **known, const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found) {
        fprintf(stderr, "han: the MPI library has no %s\n", name);
        abort();
    }
    return *known = found;
}

bool han_has(void **known, const char *name) {
    if (!*known) *known = dlsym(RTLD_DEFAULT, name);
    return *known;
}

bool han_wide(void) {
    static int wide = -1;
    if (wide < 0) {
        Dl_info of = {0};
        void *init = dlsym(RTLD_DEFAULT, "PMPI_Init");
        bool standard =
            init && dladdr(init, &of) && of.dli_fname && strstr(of.dli_fname, "mpi_abi");
        wide = standard || dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
    }
    return wide;
}

han_handle han_as_handle(intptr_t h) { return han_wide() ? h : (intptr_t)(int)h; }

/* ---- what is known of a communicator -------------------------------------------------------- */

static int copy_nothing(intptr_t comm, int key, void *extra, void *value, void *out, int *flag) {
    (void)comm, (void)key, (void)extra, (void)value, (void)out;
    *flag = 0;
    return 0;
}

static int drop(intptr_t comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)extra;
    free(value);
    return 0;
}

static bool has_keyval(void) {
    if (__atomic_load_n(&keyed, __ATOMIC_ACQUIRE)) return true;
    pthread_mutex_lock(&opening);
    if (!keyed && !HAN_MPIS(Comm_create_keyval, (void *, void *, int *, void *),
                            (void *)copy_nothing, (void *)drop, &keyval, NULL))
        __atomic_store_n(&keyed, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&opening);
    return keyed;
}

static known_comm *find(han_handle comm) {
    known_comm *found = NULL;
    int flag = 0;
    if (HAN_MPIS(Comm_get_attr, (intptr_t, int, void *, int *), comm, keyval, &found, &flag))
        return NULL;
    return flag ? found : NULL;
}

static known_comm *meet(han_handle comm) {
    int size = 1, inter = 0;
    known_comm *k = calloc(1, sizeof *k);
    if (!k || HAN_MPIS(Comm_size, (intptr_t, int *), comm, &size) ||
        HAN_MPIS(Comm_test_inter, (intptr_t, int *), comm, &inter) ||
        HAN_MPIS(Comm_set_attr, (intptr_t, int, void *), comm, keyval, k)) {
        free(k);
        return NULL;
    }
    k->alone = size < 2 || inter;
    return k;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int serve_first(known_comm *k, const han_door_call *c) {
    if (!api) {
        pthread_mutex_lock(&opening);
        bool had = api || han_door_python();
        pthread_mutex_unlock(&opening);
        if (!had || !api) {
            shut = true; /* the reason is the same on all ranks of an installation */
            return HAN_DOOR_LEFT;
        }
    }
    k->served = true;
    return api->first(c, &k->look_up);
}

int han_door_serve(const han_door_call *c) {
    int code;
    if (inside || shut || !has_keyval()) return HAN_DOOR_LEFT;
    known_comm *k = find(c->comm);
    if (!k && !(k = meet(c->comm))) return HAN_DOOR_LEFT;
    if (k->alone || (!k->served && ++k->calls < SETTLED)) return HAN_DOOR_LEFT;
    inside++;
    if (!k->look_up || !api->again(k->look_up, c, &code)) code = serve_first(k, c);
    inside--;
    return code;
}

/* ---- the ends of communicators, operations and MPI ------------------------------------------ */

static int release(intptr_t *at) {
    han_handle comm = han_wide() ? *at : (intptr_t)*(int *)at;
    known_comm *k = inside || shut || !keyed ? NULL : find(comm);
    return k && k->served ? api->free(comm) : 0;
}

#define DEFINE_END(NAME)                                \
    HAN_PUBLIC int MPI_##NAME(intptr_t *comm) {         \
        int code = release(comm);                       \
        inside++; /* attributes are deleted */          \
        int freed = HAN_MPIS(NAME, (intptr_t *), comm); \
        inside--;                                       \
        return code ? code : freed;                     \
    }
DEFINE_END(Comm_free)
DEFINE_END(Comm_disconnect)

HAN_PUBLIC int MPI_Op_free(intptr_t *op) {
    if (api && !inside && !shut) {
        inside++;
        api->forget(han_wide() ? *op : (intptr_t)*(int *)op);
        inside--;
    }
    return HAN_MPIS(Op_free, (intptr_t *), op);
}

HAN_PUBLIC int MPI_Finalize(void) {
    inside++;
    if (api && !shut) api->end();
    shut = true;
    int code = HAN_MPIS(Finalize, (void));
    inside--;
    return code;
}
