/* The table of native plans by the facts of a call. */
#ifndef HAN_LOOK_UP_H
#define HAN_LOOK_UP_H

#include "python/objects.h"

enum { HAN_LOOK_UP_SLOTS = 512, HAN_LOOK_UP_MOST = HAN_LOOK_UP_SLOTS / 2 };

typedef struct {
    uint64_t nbytes;
    PyObject *op;     /* compared by identity; owned */
    uint64_t handle;  /* of MPI's type, if the library or the user's function reduces; 0: any */
    int32_t collective, root, kind;
    PlanObject *plan; /* owned; NULL: an empty slot */
} han_entry;

typedef struct {
    uint32_t used;
    han_entry slots[HAN_LOOK_UP_SLOTS];
} han_look_up;

/* The entry of a call, or the empty slot where it belongs. */
han_entry *han_look_up_find(han_look_up *, const han_entry *key);
/* Enter a plan, unless there is one; a full table is emptied first. */
void han_look_up_add(han_look_up *, const han_entry *);
void han_look_up_clear(han_look_up *);

#endif
