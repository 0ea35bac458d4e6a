/* Persistent requests that C and Fortran programs make. */
#ifndef HAN_DOOR_REQUESTS_H
#define HAN_DOOR_REQUESTS_H

#include "door.h"

/* How an array of requests is stored. */
enum han_cells { HAN_C_CELLS, HAN_FORTRAN_CELLS };

/* Requests of a program, of which MPI may complete some. */
enum { HAN_FEW_REQUESTS = 16 };
typedef struct {
    void *requests;
    int n;
    enum han_cells cells;
    void **all, *few[HAN_FEW_REQUESTS]; /* for each request what the door knows of it, or NULL */
} han_shown;

/* Whether there are persistent requests. */
bool han_door_has_persistent(void);
/* Give the program the request that a call has made. */
void han_door_keep(const han_door_call *);
/* Complete those of han's requests that are under way, before MPI completes all others; `block`: wait for
 * them. For MPI's functions that complete all, or one. */
void han_door_finish_all(void *requests, int n, enum han_cells, bool block);
/* Put MPI's handles of what is under way into an array, and afterwards the program's own back. */
void han_door_show(han_shown *, void *requests, int n, enum han_cells);
void han_door_hide(han_shown *);
/* A copy of an array that the program only looks at, maybe in several threads; the caller frees it. NULL:
 * the array itself will do, as there are no persistent requests. */
void *han_door_copied(const void *requests, int n, enum han_cells);
/* Start requests: those of han, and the others by MPI. */
int han_door_start_all(void *requests, int n, enum han_cells);
/* Release a persistent request of han, if it is one; MPI then frees the handle. */
void han_door_forget(void *request, enum han_cells);

#endif
