/* The interpreter of a program of C or Fortran. */
#ifndef HAN_DOOR_INTERPRETER_H
#define HAN_DOOR_INTERPRETER_H

#include <stdbool.h>

/* Start the interpreter, and let it open the door. False if the program is Python's; with a line on
 * stderr, if the interpreter or han cannot be had. */
bool han_door_python(void);

#endif
