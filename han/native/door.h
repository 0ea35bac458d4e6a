/* The C door: collectives that C and Fortran programs call reach han. The preloaded library (this
 * folder, without Python and mpi.h) defines MPI's functions; han._native (python/py_door.c) serves
 * them. */
#ifndef HAN_DOOR_H
#define HAN_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "mpi_table.h"

/* How the blocks of a call are told: they are alike, have counts of their own, or types of their own. */
enum han_door_form { HAN_DOOR_EQUAL, HAN_DOOR_COUNTED, HAN_DOOR_TYPED };

/* When a call is complete: as it returns, when its request is, or whenever MPI_Start has started it. */
enum han_door_when { HAN_DOOR_NOW, HAN_DOOR_LATER, HAN_DOOR_STARTED };

/* One side of a call. `counts` and `places` are numbers for each rank, of 64 bits in calls with large
 * counts; `types` are MPI's handles, one for each rank. */
typedef struct {
    const void *data;
    int64_t n; /* elements, of a block where there are several */
    han_handle type;
    const void *counts, *places, *types;
} han_door_side;

/* The request of a call: MPI's handle, by which MPI completes a started call, and otherwise one that is
 * inactive; and what `start` takes, of a persistent one. */
typedef struct {
    han_handle handle;
    void *persistent;
} han_door_request;

/* A call as the program made it. What its collective does not have is 0. */
typedef struct {
    int collective; /* HAN_C_BCAST ... of program.h */
    enum han_door_form form;
    enum han_door_when when;
    bool large;               /* counts are of 64 bits */
    bool neighbours;          /* blocks are for neighbours of a topology */
    han_door_side send, recv; /* a broadcast has `recv` */
    han_handle op, comm;
    int root;
    void *request;         /* the program's variable */
    han_door_request made; /* what the call has made for it */
} han_door_call;

/* What han._native does for the door. Codes are MPI's; HAN_DOOR_LEFT: the call is MPI's. */
enum { HAN_DOOR_LEFT = -1, HAN_DOOR_VERSION = 3 };
typedef struct {
    int version;
    /* Set han up for a communicator; collective. Whether it can serve it. */
    bool (*begin)(han_handle comm);
    /* Serve a call of a class that was served before, without Python; false: it is not known. */
    bool (*again)(void *calls, han_door_call *, int *code);
    /* Serve any call, by Python, and tell what `again` takes from then on; NULL: nothing. */
    int (*first)(han_door_call *, void **calls);
    /* Start a persistent request; `active`: MPI's handle until it is complete. */
    int (*start)(void *persistent, han_handle *active);
    /* Complete a request that was started; `block`: wait for it. 1, or 0 if it is not complete, or
     * HAN_DOOR_LEFT: MPI must. */
    int (*finish)(han_handle, bool block);
    /* Whether any request is under way. */
    bool (*busy)(void);
    /* Free a persistent request. */
    void (*drop)(void *persistent);
    /* Release what han holds for a communicator, before MPI frees it; collective. */
    int (*free)(han_handle comm);
    /* Forget an operation of the program, before MPI frees it. */
    void (*forget)(han_handle op);
    /* Take leave of the other ranks, before MPI is finalized. */
    void (*end)(void);
} han_door_api;

/* What HAN_DOOR_OPEN (mpi_table.h) names: it opens the door. */
typedef void han_door_open_fn(const han_door_api *);

/* Symbols of the library, for a program whose Python calls han and MPI. While the number of this thread
 * is not 0, its calls are han's own, which the library leaves to MPI. */
#define HAN_DOOR_OWN "han_door_own"
typedef int *han_door_own_fn(void);
/* han has closed what it held for a communicator, which the program goes on using: forget it. */
#define HAN_DOOR_LOSE "han_door_lose"
typedef void han_door_lose_fn(han_handle comm);

#endif
