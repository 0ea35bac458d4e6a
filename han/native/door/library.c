/* MPI's own functions and constants, without mpi.h. */
#define _GNU_SOURCE
#include "door/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A symbol that is looked for in some libraries of the process. */
typedef struct {
    const char *part, *name;
    void *found;
} sought;

static int look(struct dl_phdr_info *info, size_t size, void *closure) {
    sought *s = closure;
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, s->part)) return 0;
    void *loaded = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (!loaded) return 0;
    s->found = dlsym(loaded, s->name);
    dlclose(loaded); /* the program keeps it */
    return s->found != NULL;
}

void *han_symbol_in(const char *part, const char *name) {
    sought s = {part, name, NULL};
    (void)dl_iterate_phdr(look, &s);
    return s.found;
}

void *han_find(const char *name) {
    void *shown = dlsym(RTLD_DEFAULT, name);
    return shown ? shown : han_symbol_in("mpi", name);
}

/* Keep a function; end the program if there is none. */
static void *expect(void **known, void *found, const char *name) {
    if (!found) {
        fprintf(stderr, "han: the MPI library has no %s\n", name);
        abort();
    }
    return *known = found;
}

void *han_mpis(void **known, const char *name) { return expect(known, han_find(name), name); }

void *han_next(void **known, const char *name) {
    return *known ? *known : expect(known, dlsym(RTLD_NEXT, name), name);
}

bool han_has(void **known, const char *name) {
    if (!*known) *known = han_find(name);
    return *known;
}

_Atomic int han_width = -1;

bool han_find_width(void) {
    Dl_info of = {0};
    void *init = han_find("PMPI_Init");
    const char *file = init && dladdr(init, &of) ? of.dli_fname : NULL;
    bool standard = file && strstr(strrchr(file, '/') ? strrchr(file, '/') : file, "mpi_abi");
    const bool wide = standard || han_find("ompi_mpi_comm_world");
    atomic_store_explicit(&han_width, wide, memory_order_relaxed);
    return wide;
}

/* ---- constants and errors -------------------------------------------------------------------- */

intptr_t han_constant(const char *symbol, intptr_t standard, int mpich) {
    void *at = han_find(symbol);
    return at ? (intptr_t)at : han_wide() ? standard : mpich;
}

han_handle han_world(void) {
    static han_handle world;
    if (!world) world = han_constant("ompi_mpi_comm_world", 0x101, 0x44000000);
    return world;
}

int han_door_fail(intptr_t comm, int class) {
    (void)HAN_MPIS(Comm_call_errhandler, (intptr_t, int), comm, class);
    return class;
}
int han_door_fail_other(intptr_t comm) {
    enum { OTHER_MPICH = 15, OTHER = 16 };
    return han_door_fail(comm, han_wide() ? OTHER : OTHER_MPICH);
}

int han_missing(const char *name, intptr_t comm) {
    fprintf(stderr, "han: the MPI library has no %s\n", name);
    return han_door_fail_other(comm);
}
