/* The MPI library behind the preloaded one: its functions, constants and errors. */
#ifndef HAN_DOOR_LIBRARY_H
#define HAN_DOOR_LIBRARY_H

#include <stdatomic.h>

#include "door.h"

#define HAN_PUBLIC __attribute__((visibility("default")))

/* A symbol of a loaded library whose file name has a part, though a program such as Python does not show it;
 * or NULL. */
void *han_symbol_in(const char *part, const char *name);
/* A symbol of the MPI library, or NULL. */
void *han_find(const char *name);
/* MPI's own function behind a name such as "PMPI_Bcast"; ends the program if there is none. */
void *han_mpis(void **known, const char *name);
/* Whether MPI has a function. */
bool han_has(void **known, const char *name);
/* Tell the handler of a communicator an error; returns its class. Without one of MPI's standard that all
 * libraries number alike it is MPI_ERR_OTHER. */
int han_door_fail(intptr_t comm, int class);
int han_door_fail_other(intptr_t comm);
/* A library lacks a function that the program has called: say so, and fail. */
int han_missing(const char *name, intptr_t comm);
/* MPI_COMM_WORLD. */
han_handle han_world(void);
/* Call MPI's own function of this name. */
#define HAN_MPIS_OF(RESULT, NAME, TYPES, ...)                                              \
    ({                                                                                     \
        static void *known;                                                                \
        ((RESULT(*) TYPES)(known ? known : han_mpis(&known, "PMPI_" #NAME)))(__VA_ARGS__); \
    })
#define HAN_MPIS(NAME, TYPES, ...) HAN_MPIS_OF(int, NAME, TYPES, __VA_ARGS__)

/* Whether handles are pointers, as in Open MPI and in MPI's standard ABI. `han_width` tells it once it was
 * found: 0 or 1, before that -1. */
extern _Atomic int han_width;
bool han_find_width(void);
static inline bool han_wide(void) {
    const int width = atomic_load_explicit(&han_width, memory_order_relaxed);
    return width < 0 ? han_find_width() : width;
}
/* A handle as an argument: a pointer, or an int in the lower half of a register. */
static inline han_handle han_as_handle(intptr_t h) { return han_wide() ? h : (intptr_t)(int)h; }

/* A constant of the library, without mpi.h: the address of a symbol of Open MPI, or the number of the
 * standard ABI or of MPICH. */
intptr_t han_constant(const char *symbol, intptr_t standard, int mpich);
/* The next definition of a Fortran function; ends the program if there is none. */
void *han_next(void **known, const char *name);

#endif
