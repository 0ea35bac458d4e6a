/* The interpreter: a Python program's own, or the one that a program of C or Fortran gets. */
#ifndef HAN_DOOR_INTERPRETER_H
#define HAN_DOOR_INTERPRETER_H

#include <stdbool.h>

/* Let the interpreter open the door; a program that has none gets one. False, with a line on stderr, if
 * the interpreter or han cannot be had. */
bool han_door_python(void);
/* Whether it was started. */
bool han_door_has_python(void);

/* Say that this program runs on MPI alone, and why; false. */
bool han_door_cannot(const char *why, const char *more);

#endif
