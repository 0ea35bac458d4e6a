/* The interpreter: a Python program's own, or the one that a program of C or Fortran gets. */
#ifndef HAN_DOOR_INTERPRETER_H
#define HAN_DOOR_INTERPRETER_H

#include <stdbool.h>

/* Let the interpreter open the door; a program that has none gets one. False, with a line on stderr, if
 * the interpreter or han cannot be had. */
bool han_door_python(void);

/* Say that this program runs on MPI alone, and why; false. */
bool han_door_cannot(const char *why, const char *more);

/* Whether an interpreter of the program's own runs. */
bool han_door_python_runs(void);
/* Let it open the door. This thread must hold no lock that others take: Python's is released in this. */
bool han_door_join_python(void);
/* Call `act` when it ends, once: nothing may call Python afterwards. */
void han_door_at_pythons_end(void (*act)(void));

#endif
