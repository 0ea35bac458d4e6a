/* What Fortran programs do with requests. The library's own functions do it, with the handles of what is
 * under way in the places of han's persistent requests. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "door/inside.h"
#include "door/requests.h"

#define LIST(...) __VA_ARGS__
/* Define a function, by the names that Fortran and Open MPI's modules use. */
#define FUNCTION(NAME, PARAMETERS, TYPES, ARGUMENTS, N)         \
    HAN_PUBLIC void mpi_##NAME##_(PARAMETERS) {                 \
        static void *known;                                     \
        han_shown s;                                            \
        if (!known) known = dlsym(RTLD_NEXT, "mpi_" #NAME "_"); \
        han_door_show(&s, requests, N, HAN_FORTRAN_CELLS);      \
        ((void (*)(TYPES))known)(ARGUMENTS);                    \
        han_door_hide(&s);                                      \
    }                                                           \
    HAN_PUBLIC void ompi_##NAME##_f(PARAMETERS) { mpi_##NAME##_(ARGUMENTS); }

FUNCTION(wait, LIST(int *requests, int *status, int *code), LIST(int *, int *, int *),
         LIST(requests, status, code), 1)
FUNCTION(test, LIST(int *requests, int *flag, int *status, int *code),
         LIST(int *, int *, int *, int *), LIST(requests, flag, status, code), 1)
FUNCTION(request_get_status, LIST(int *requests, int *flag, int *status, int *code),
         LIST(int *, int *, int *, int *), LIST(requests, flag, status, code), 1)
FUNCTION(waitall, LIST(int *n, int *requests, int *statuses, int *code),
         LIST(int *, int *, int *, int *), LIST(n, requests, statuses, code), *n)
FUNCTION(testall, LIST(int *n, int *requests, int *flag, int *statuses, int *code),
         LIST(int *, int *, int *, int *, int *), LIST(n, requests, flag, statuses, code), *n)
FUNCTION(waitany, LIST(int *n, int *requests, int *index, int *status, int *code),
         LIST(int *, int *, int *, int *, int *), LIST(n, requests, index, status, code), *n)
FUNCTION(testany, LIST(int *n, int *requests, int *index, int *flag, int *status, int *code),
         LIST(int *, int *, int *, int *, int *, int *),
         LIST(n, requests, index, flag, status, code), *n)
FUNCTION(waitsome, LIST(int *n, int *requests, int *m, int *indices, int *statuses, int *code),
         LIST(int *, int *, int *, int *, int *, int *),
         LIST(n, requests, m, indices, statuses, code), *n)
FUNCTION(testsome, LIST(int *n, int *requests, int *m, int *indices, int *statuses, int *code),
         LIST(int *, int *, int *, int *, int *, int *),
         LIST(n, requests, m, indices, statuses, code), *n)

HAN_PUBLIC void mpi_start_(int *request, int *code) {
    *code = han_door_start_all(request, 1, HAN_FORTRAN_CELLS);
}
HAN_PUBLIC void ompi_start_f(int *request, int *code) { mpi_start_(request, code); }

HAN_PUBLIC void mpi_startall_(int *n, int *requests, int *code) {
    *code = han_door_start_all(requests, *n, HAN_FORTRAN_CELLS);
}
HAN_PUBLIC void ompi_startall_f(int *n, int *requests, int *code) {
    mpi_startall_(n, requests, code);
}

HAN_PUBLIC void mpi_request_free_(int *request, int *code) {
    static void *known;
    if (!known) known = dlsym(RTLD_NEXT, "mpi_request_free_");
    han_door_forget(request, HAN_FORTRAN_CELLS);
    ((void (*)(int *, int *))known)(request, code);
}
HAN_PUBLIC void ompi_request_free_f(int *request, int *code) { mpi_request_free_(request, code); }
