/* Which calls of the program han serves, and its requests. */
#ifndef HAN_DOOR_SERVING_H
#define HAN_DOOR_SERVING_H

#include "door.h"

/* Serve a call: MPI's code, or HAN_DOOR_LEFT. */
int han_door_serve(han_door_call *);
/* Take notice of the code of a call that was left to MPI; returns it. */
int han_door_left(int code);
/* The same as in door.h. */
int han_door_start(void *persistent, han_handle *active);
int han_door_finish(han_handle, bool block);
void han_door_drop(void *persistent);
bool han_door_busy(void);
/* Forget an operation of the program, before MPI frees it. */
void han_door_forget_op(han_handle);

#endif
