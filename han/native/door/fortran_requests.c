/* What Fortran programs do with requests. The library's own functions do it, with the handles of what is
 * under way in the places of han's persistent requests. */
#include <stdlib.h>

#include "door/library.h"
#include "door/requests.h"

#define LIST(...) __VA_ARGS__
/* What is done before MPI's function: nothing, complete han's requests, or spare the program's array. */
enum first { NOTHING, WAIT, TEST, LOOK };

static void *before(enum first first, int *requests, int n) {
    if (first == LOOK) return han_door_copied(requests, n, HAN_FORTRAN_CELLS);
    if (first) han_door_finish_all(requests, n, HAN_FORTRAN_CELLS, first == WAIT);
    return NULL;
}

/* Define a function of N `requests` that calls the next one of its name. */
#define NAMED(NAME, FIRST, PARAMETERS, TYPES, ARGUMENTS, N)    \
    HAN_PUBLIC void NAME(PARAMETERS) {                         \
        static void *known;                                    \
        han_shown s;                                           \
        void *copy = before(FIRST, requests, N);               \
        if (copy) requests = copy;                             \
        han_door_show(&s, requests, N, HAN_FORTRAN_CELLS);     \
        ((void (*)(TYPES))han_next(&known, #NAME))(ARGUMENTS); \
        han_door_hide(&s);                                     \
        free(copy);                                            \
    }
/* Define a function, by the names that Fortran, MPICH's module mpi_f08 and Open MPI's modules use. */
#define FUNCTION(NAME, FIRST, PARAMETERS, TYPES, ARGUMENTS, N)                         \
    NAMED(mpi_##NAME##_, FIRST, LIST(PARAMETERS), LIST(TYPES), LIST(ARGUMENTS), N)     \
    NAMED(mpi_##NAME##_f08_, FIRST, LIST(PARAMETERS), LIST(TYPES), LIST(ARGUMENTS), N) \
    HAN_PUBLIC void ompi_##NAME##_f(PARAMETERS) { mpi_##NAME##_(ARGUMENTS); }

FUNCTION(wait, WAIT, LIST(int *requests, int *status, int *code), LIST(int *, int *, int *),
         LIST(requests, status, code), 1)
FUNCTION(test, TEST, LIST(int *requests, int *flag, int *status, int *code),
         LIST(int *, int *, int *, int *), LIST(requests, flag, status, code), 1)
FUNCTION(request_get_status, LOOK, LIST(int *requests, int *flag, int *status, int *code),
         LIST(int *, int *, int *, int *), LIST(requests, flag, status, code), 1)
FUNCTION(waitall, WAIT, LIST(int *n, int *requests, int *statuses, int *code),
         LIST(int *, int *, int *, int *), LIST(n, requests, statuses, code), *n)
/* Those that tell of all, of any or of some requests. */
#define OF_ALL(NAME, FIRST)                                                                 \
    FUNCTION(NAME, FIRST, LIST(int *n, int *requests, int *flag, int *statuses, int *code), \
             LIST(int *, int *, int *, int *, int *), LIST(n, requests, flag, statuses, code), *n)
#define OF_ANY(NAME, FIRST)                                                              \
    FUNCTION(NAME, FIRST,                                                                \
             LIST(int *n, int *requests, int *index, int *flag, int *status, int *code), \
             LIST(int *, int *, int *, int *, int *, int *),                             \
             LIST(n, requests, index, flag, status, code), *n)
#define OF_SOME(NAME, FIRST)                                                              \
    FUNCTION(NAME, FIRST,                                                                 \
             LIST(int *n, int *requests, int *m, int *indices, int *statuses, int *code), \
             LIST(int *, int *, int *, int *, int *, int *),                              \
             LIST(n, requests, m, indices, statuses, code), *n)
OF_ALL(testall, NOTHING)
OF_ALL(request_get_status_all, LOOK)
OF_ANY(testany, NOTHING)
OF_ANY(request_get_status_any, LOOK)
OF_SOME(waitsome, NOTHING)
OF_SOME(testsome, NOTHING)
OF_SOME(request_get_status_some, LOOK)
FUNCTION(waitany, NOTHING, LIST(int *n, int *requests, int *index, int *status, int *code),
         LIST(int *, int *, int *, int *, int *), LIST(n, requests, index, status, code), *n)

/* The code may be missing in calls of mpi_f08. */
static void tell(int *code, int found) {
    if (code) *code = found;
}

HAN_PUBLIC void mpi_start_(int *request, int *code) {
    tell(code, han_door_start_all(request, 1, HAN_FORTRAN_CELLS));
}
HAN_PUBLIC void mpi_start_f08_(int *request, int *code) { mpi_start_(request, code); }
HAN_PUBLIC void ompi_start_f(int *request, int *code) { mpi_start_(request, code); }

HAN_PUBLIC void mpi_startall_(int *n, int *requests, int *code) {
    tell(code, han_door_start_all(requests, *n, HAN_FORTRAN_CELLS));
}
HAN_PUBLIC void mpi_startall_f08_(int *n, int *requests, int *code) {
    mpi_startall_(n, requests, code);
}
HAN_PUBLIC void ompi_startall_f(int *n, int *requests, int *code) {
    mpi_startall_(n, requests, code);
}

#define DEFINE_FREE(NAME)                                                 \
    HAN_PUBLIC void NAME(int *request, int *code) {                       \
        static void *known;                                               \
        han_door_forget(request, HAN_FORTRAN_CELLS);                      \
        ((void (*)(int *, int *))han_next(&known, #NAME))(request, code); \
    }
DEFINE_FREE(mpi_request_free_)
DEFINE_FREE(mpi_request_free_f08_)
HAN_PUBLIC void ompi_request_free_f(int *request, int *code) { mpi_request_free_(request, code); }
