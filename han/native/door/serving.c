/* Which calls of the program han serves. MPI keeps what the door knows of a communicator as an
 * attribute, so that a handle that MPI gives out again has none. */
#include "door/serving.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "door/interpreter.h"
#include "door/library.h"
#include "door/python_program.h"

/* han serves a communicator after so many collectives that MPI has not refused: all ranks count alike. To
 * set han up takes milliseconds, which communicators of a few calls do not win back. */
enum { SETTLED_WORLD = 7, SETTLED = 100 };

/* The same, or what a test has set for all ranks. */
static unsigned settled(han_handle comm) {
    static unsigned number = UINT_MAX;
    static bool asked;
    if (!asked) {
        const char *said = getenv("HAN_TEST_SETTLED");
        number = said ? (unsigned)atoi(said) : UINT_MAX;
        asked = true;
    }
    return number != UINT_MAX ? number : comm == han_world() ? SETTLED_WORLD : SETTLED;
}

typedef struct {
    unsigned calls; /* collectives so far, until han serves it */
    bool alone; /* MPI alone serves it: one rank, two groups or worlds, or no han on some rank */
    bool served;
    void *look_up; /* han's, for repeated calls */
} known_comm;

static const han_door_api *api;
static _Thread_local int own;     /* han itself calls MPI */
static _Thread_local int freeing; /* MPI frees a communicator, and deletes its attributes */
static _Thread_local known_comm *counting; /* of the call that is MPI's, if it counts */
static bool shut;                          /* han cannot be had here */
static bool starting;                      /* the interpreter is none of the program's own */
static bool ended;                         /* MPI is being finalized */
static bool sessions;                      /* the program has used some */
static bool keyed;                         /* there is a key */
static int keyval;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

HAN_PUBLIC void han_door_open(const han_door_api *given) {
    if (given->version == HAN_DOOR_VERSION) api = given;
}

/* ---- what is known of a communicator -------------------------------------------------------- */

/* Take leave of the other ranks: from now on all calls are MPI's. */
static void take_leave(void) {
    own++;
    if (api && !ended) api->end();
    ended = true;
    own--;
}

static int copy_nothing(intptr_t comm, int key, void *extra, void *value, void *out, int *flag) {
    (void)comm, (void)key, (void)extra, (void)value, (void)out;
    *flag = 0;
    return 0;
}

static _Atomic unsigned dropped; /* communicators that MPI has freed */

static int forget_comm(intptr_t comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)extra;
    atomic_fetch_add_explicit(&dropped, 1, memory_order_release);
    free(value);
    return 0;
}

static bool has_keyval(void) {
    if (__atomic_load_n(&keyed, __ATOMIC_ACQUIRE)) return true;
    han_door_at_pythons_end(take_leave);
    pthread_mutex_lock(&opening);
    if (!keyed && !HAN_MPIS(Comm_create_keyval, (void *, void *, int *, void *),
                            (void *)copy_nothing, (void *)forget_comm, &keyval, NULL))
        __atomic_store_n(&keyed, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&opening);
    return keyed;
}

/* What this thread found last. It holds as long as MPI has freed no communicator. */
static _Thread_local struct {
    han_handle comm;
    known_comm *known; /* NULL: nothing */
    unsigned dropped;
} last;

static known_comm *find(han_handle comm) {
    const unsigned now = atomic_load_explicit(&dropped, memory_order_acquire);
    if (last.known && last.comm == comm && last.dropped == now) return last.known;
    known_comm *found = NULL;
    int flag = 0;
    if (HAN_MPIS(Comm_get_attr, (intptr_t, int, void *, int *), comm, keyval, &found, &flag) ||
        !flag)
        return NULL;
    last.comm = comm;
    last.known = found;
    last.dropped = now;
    return found;
}

/* Whether the program has MPI_COMM_WORLD, as one of sessions alone has not: han's Python needs it. What a
 * session has, such as a key, ends with it. */
static bool has_world(void) {
    static bool known;
    int flag = 0;
    if (!known) known = !HAN_MPIS(Initialized, (int *), &flag) && flag;
    return known;
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

/* Whether all ranks of a communicator say yes; collective. */
static bool all_say(han_handle comm, bool yes) {
    int mine = yes, least = 0;
    intptr_t type = han_constant("ompi_mpi_int", 0x209, 0x4c000405);
    intptr_t op = han_constant("ompi_mpi_op_min", 0x22, 0x58000002);
    return !HAN_MPIS(Allreduce, (const void *, void *, int, intptr_t, intptr_t, intptr_t), &mine,
                     &least, 1, type, op, comm) &&
           least;
}

static bool is_null(han_handle comm) {
    static intptr_t null;
    if (!null) null = han_constant("ompi_mpi_comm_null", 0x100, 0x04000000);
    return comm == null;
}

/* Whether this process has han, which the first call tries to find. A thread must not wait for Python's
 * lock with another lock held, as a caller of MPI may hold Python's. */
static bool has_han(void) {
    if (api || shut) return !shut;
    if (han_door_python_runs() && !starting) {
        han_door_at_pythons_end(take_leave);
        return !(shut = !han_door_join_python() || !api);
    }
    pthread_mutex_lock(&opening);
    starting = true;
    if (!api && !shut) shut = !han_door_python() || !api;
    pthread_mutex_unlock(&opening);
    return !shut;
}

/* Whether a communicator has ranks of other worlds: spawned ones, which may not have this library. */
static bool has_strangers(intptr_t comm) {
    intptr_t group = 0, world = 0, others = 0;
    int n = 0;
    if (comm == han_world() || sessions) return false;
    (void)HAN_MPIS(Comm_group, (intptr_t, void *), comm, &group);
    (void)HAN_MPIS(Comm_group, (intptr_t, void *), han_world(), &world);
    (void)HAN_MPIS(Group_difference, (intptr_t, intptr_t, void *), group, world, &others);
    (void)HAN_MPIS(Group_size, (intptr_t, int *), others, &n);
    if (n) (void)HAN_MPIS(Group_free, (void *), &others);
    (void)HAN_MPIS(Group_free, (void *), &group);
    (void)HAN_MPIS(Group_free, (void *), &world);
    return n;
}

/* Let han serve a communicator, if it can on all ranks: they come here in the same call. Those of two
 * worlds do not, and each rank knows that by itself. */
static bool settle(known_comm *k, han_handle comm) {
    /* Worlds are compared here and not before: some libraries compare each rank with each. MPICH ends the
     * program where one group is a session's, so beside sessions han serves MPI_COMM_WORLD alone. */
    k->served = !has_strangers(comm) &&
                all_say(comm, (!sessions || comm == han_world()) && has_han()) &&
                all_say(comm, api->begin(comm));
    k->alone = !k->served;
    return k->served;
}

int han_door_serve(han_door_call *c) {
    int code = HAN_DOOR_LEFT;
    counting = NULL;
    if (own || freeing || ended || !has_world() || is_null(c->comm) || !has_keyval())
        return HAN_DOOR_LEFT;
    known_comm *k = find(c->comm);
    if (!k && !(k = meet(c->comm))) return HAN_DOOR_LEFT;
    if (k->alone) return HAN_DOOR_LEFT;
    /* A nonblocking call must not wait for other ranks. */
    if (!k->served && (k->calls < settled(c->comm) || c->when == HAN_DOOR_LATER)) {
        counting = k;
        return HAN_DOOR_LEFT;
    }
    own++;
    if ((k->served || settle(k, c->comm)) && !(k->look_up && api->again(k->look_up, c, &code)))
        code = api->first(c, &k->look_up);
    own--;
    return code;
}

int han_door_start(void *persistent, han_handle *active) {
    if (ended) {
        fprintf(stderr, "han: MPI_Start: Python has ended, and with it han's requests\n");
        return han_door_fail_other(han_world());
    }
    own++;
    int code = api->start(persistent, active);
    own--;
    return code;
}

int han_door_finish(han_handle request, bool block) {
    if (!api || own || ended) return HAN_DOOR_LEFT;
    own++;
    int done = api->finish(request, block);
    own--;
    return done;
}

void han_door_drop(void *persistent) {
    if (ended) return;
    own++;
    api->drop(persistent);
    own--;
}

/* Whether MPI has refused a call for its arguments, which are the first classes of errors everywhere. Other
 * errors, such as a message that is cut, come from a call that all ranks have made. */
static bool refused(int code) {
    enum { LAST = 13 }; /* MPI_ERR_ARG of Open MPI; MPICH's is 12, before one of unknown errors */
    int class = LAST;
    return code && (HAN_MPIS(Error_class, (int, int *), code, &class) || class <= LAST);
}

int han_door_left(int code) {
    if (counting && !refused(code)) counting->calls++;
    counting = NULL;
    return code;
}

/* ---- the ends of communicators, operations and MPI ------------------------------------------ */

static int release(intptr_t *at) {
    han_handle comm = han_wide() ? *at : (intptr_t)*(int *)at;
    known_comm *k = own || ended || !keyed || is_null(comm) ? NULL : find(comm);
    if (!k || !k->served) return 0;
    k->look_up = NULL;
    own++;
    int code = api->free(comm);
    own--;
    return code;
}

#define DEFINE_END(NAME)                                \
    HAN_PUBLIC int MPI_##NAME(intptr_t *comm) {         \
        int code = release(comm);                       \
        freeing++;                                      \
        int freed = HAN_MPIS(NAME, (intptr_t *), comm); \
        freeing--;                                      \
        return code ? code : freed;                     \
    }
DEFINE_END(Comm_free)
DEFINE_END(Comm_disconnect)

bool han_door_busy(void) { return api && !ended && api->busy(); }

void han_door_forget_op(han_handle op) {
    if (!api || own || ended) return;
    own++;
    api->forget(op);
    own--;
}

/* Python ends before MPI does. It calls what was registered last first, so this is registered first, on
 * all ranks alike. */
HAN_PUBLIC int MPI_Init(int *argc, char ***argv) {
    int code = HAN_MPIS(Init, (int *, char ***), argc, argv);
    han_door_at_pythons_end(take_leave);
    return code;
}
HAN_PUBLIC int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    int code = HAN_MPIS(Init_thread, (int *, char ***, int, int *), argc, argv, required, provided);
    han_door_at_pythons_end(take_leave);
    return code;
}

HAN_PUBLIC int MPI_Session_init(intptr_t info, intptr_t handler, void *session) {
    static void *known;
    sessions = true;
    if (!han_has(&known, "PMPI_Session_init")) return han_missing("MPI_Session_init", han_world());
    return ((int (*)(intptr_t, intptr_t, void *))known)(info, handler, session);
}

HAN_PUBLIC int MPI_Finalize(void) {
    take_leave();
    own++;
    int code = HAN_MPIS(Finalize, (void));
    own--;
    return code;
}

/* ---- han's own calls of MPI in a Python program ------------------------------------------------ */

HAN_PUBLIC int *han_door_own(void) { return &own; }

HAN_PUBLIC void han_door_lose(han_handle comm) {
    known_comm *k = ended || freeing || !keyed ? NULL : find(han_as_handle(comm));
    if (!k || !k->served) return;
    k->look_up = NULL;
    k->served = false;
    k->calls = 0;
}
