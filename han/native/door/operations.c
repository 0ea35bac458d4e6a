/* The program's own operations and types. MPI frees an operation when no call needs it any more; of han's
 * calls it does not know. So one is freed later if calls of han are under way, or may be started again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "door/library.h"
#include "door/serving.h"
#include "door/requests.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static han_handle *waiting; /* to be freed */
static size_t n_waiting;

/* Whether an operation is MPI's own, which MPI does not free: Open MPI's are in the library's memory. */
static bool is_predefined(han_handle op) {
    enum { MOST_OF_STANDARD = 0xfff, BUILT_IN = 1 }; /* of MPICH: the two upper bits */
    Dl_info of;
    if (!han_wide()) return (unsigned)op >> 30 == BUILT_IN;
    return (uintptr_t)op <= MOST_OF_STANDARD || dladdr((void *)op, &of);
}

static bool in_use(void) { return han_door_has_persistent() || han_door_busy(); }

static int free_now(han_handle op) {
    int narrow = (int)op;
    han_door_forget_op(op);
    return HAN_MPIS(Op_free, (void *), han_wide() ? (void *)&op : (void *)&narrow);
}

/* Let an operation wait; false if there is no memory. */
static bool postpone(han_handle op) {
    han_handle *more = realloc(waiting, (n_waiting + 1) * sizeof *more);
    if (!more) return false;
    waiting = more;
    waiting[n_waiting++] = op;
    return true;
}

/* Take those that wait, if no call needs them; the caller frees the list. */
static han_handle *taken(size_t *n, bool used) {
    han_handle *all = used ? NULL : waiting;
    *n = used ? 0 : n_waiting;
    if (!used) waiting = NULL, n_waiting = 0;
    return all;
}

HAN_PUBLIC int MPI_Op_free(void *op) {
    static han_handle null;
    if (!null) null = han_constant("ompi_mpi_op_null", 0x20, 0x18000000);
    const han_handle freed = han_wide() ? *(intptr_t *)op : *(int *)op;
    if (freed == null || is_predefined(freed)) return HAN_MPIS(Op_free, (void *), op);
    size_t n;
    pthread_mutex_lock(&lock);
    const bool used = in_use();
    const bool later = used && postpone(freed);
    han_handle *all = taken(&n, used);
    pthread_mutex_unlock(&lock);
    for (size_t k = 0; k < n; k++) (void)free_now(all[k]);
    free(all);
    if (!later) {
        han_door_forget_op(freed);
        return HAN_MPIS(Op_free, (void *), op);
    }
    if (han_wide())
        *(intptr_t *)op = null;
    else
        *(int *)op = (int)null;
    return 0;
}
