/* A program's own interpreter. */
#ifndef HAN_DOOR_PYTHON_PROGRAM_H
#define HAN_DOOR_PYTHON_PROGRAM_H

#include <stdbool.h>

/* Whether an interpreter of the program's own runs. */
bool han_door_python_runs(void);
/* Let it open the door. This thread must hold no lock that others take: Python's is released in this. */
bool han_door_join_python(void);
/* Call `act` when it ends, once: nothing may call Python afterwards. */
void han_door_at_pythons_end(void (*act)(void));

#endif
