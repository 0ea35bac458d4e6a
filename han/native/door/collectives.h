/* What Fortran's collectives ask about those of C, which they call. */
#ifndef HAN_DOOR_COLLECTIVES_H
#define HAN_DOOR_COLLECTIVES_H

#include <stdbool.h>

/* Whether this thread's last collective was han's. */
bool han_door_served(void);

#endif
