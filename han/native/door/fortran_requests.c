/* What Fortran programs do with requests. The library's own functions do it, with the handles of what is
 * under way in the places of han's persistent requests. */
#include <stdlib.h>

#include "door/inside.h"
#include "door/requests.h"

#define LIST(...) __VA_ARGS__
/* What is done first by those that only look at requests. */
#define LOOK(N)                                             \
    copy = han_door_copied(requests, N, HAN_FORTRAN_CELLS); \
    if (copy) requests = copy
/* Define a function that calls the next one of its name. */
#define NAMED(NAME, BEFORE, PARAMETERS, TYPES, ARGUMENTS, N)   \
    HAN_PUBLIC void NAME(PARAMETERS) {                         \
        static void *known;                                    \
        han_shown s;                                           \
        void *copy = NULL;                                     \
        BEFORE;                                                \
        han_door_show(&s, requests, N, HAN_FORTRAN_CELLS);     \
        ((void (*)(TYPES))han_next(&known, #NAME))(ARGUMENTS); \
        han_door_hide(&s);                                     \
        free(copy);                                            \
    }
/* Define a function, by the names that Fortran, MPICH's module mpi_f08 and Open MPI's modules use. */
#define FUNCTION(NAME, BEFORE, PARAMETERS, TYPES, ARGUMENTS, N)                         \
    NAMED(mpi_##NAME##_, BEFORE, LIST(PARAMETERS), LIST(TYPES), LIST(ARGUMENTS), N)     \
    NAMED(mpi_##NAME##_f08_, BEFORE, LIST(PARAMETERS), LIST(TYPES), LIST(ARGUMENTS), N) \
    HAN_PUBLIC void ompi_##NAME##_f(PARAMETERS) { mpi_##NAME##_(ARGUMENTS); }

FUNCTION(wait, han_door_finish_all(requests, 1, HAN_FORTRAN_CELLS, true),
         LIST(int *requests, int *status, int *code), LIST(int *, int *, int *),
         LIST(requests, status, code), 1)
FUNCTION(test, han_door_finish_all(requests, 1, HAN_FORTRAN_CELLS, false),
         LIST(int *requests, int *flag, int *status, int *code), LIST(int *, int *, int *, int *),
         LIST(requests, flag, status, code), 1)
FUNCTION(request_get_status, LOOK(1), LIST(int *requests, int *flag, int *status, int *code),
         LIST(int *, int *, int *, int *), LIST(requests, flag, status, code), 1)
FUNCTION(waitall, han_door_finish_all(requests, *n, HAN_FORTRAN_CELLS, true),
         LIST(int *n, int *requests, int *statuses, int *code), LIST(int *, int *, int *, int *),
         LIST(n, requests, statuses, code), *n)
/* Those that tell of all, of any or of some requests. */
#define OF_ALL(NAME, BEFORE)                                                                 \
    FUNCTION(NAME, BEFORE, LIST(int *n, int *requests, int *flag, int *statuses, int *code), \
             LIST(int *, int *, int *, int *, int *), LIST(n, requests, flag, statuses, code), *n)
#define OF_ANY(NAME, BEFORE)                                                             \
    FUNCTION(NAME, BEFORE,                                                               \
             LIST(int *n, int *requests, int *index, int *flag, int *status, int *code), \
             LIST(int *, int *, int *, int *, int *, int *),                             \
             LIST(n, requests, index, flag, status, code), *n)
#define OF_SOME(NAME, BEFORE)                                                             \
    FUNCTION(NAME, BEFORE,                                                                \
             LIST(int *n, int *requests, int *m, int *indices, int *statuses, int *code), \
             LIST(int *, int *, int *, int *, int *, int *),                              \
             LIST(n, requests, m, indices, statuses, code), *n)
OF_ALL(testall, (void)0)
OF_ALL(request_get_status_all, LOOK(*n))
OF_ANY(testany, (void)0)
OF_ANY(request_get_status_any, LOOK(*n))
OF_SOME(waitsome, (void)0)
OF_SOME(testsome, (void)0)
OF_SOME(request_get_status_some, LOOK(*n))
FUNCTION(waitany, (void)0, LIST(int *n, int *requests, int *index, int *status, int *code),
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
