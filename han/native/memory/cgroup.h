/* How much memory control groups leave: what exceeds that would have a process killed. */
#ifndef HAN_ROOM_H
#define HAN_ROOM_H

#include <stdint.h>

/* Bytes that the limit of a group (of version 1 or 2, by its folder) leaves, with what the kernel can
 * take back from files' caches, unless `enough` is left without that; UINT64_MAX where there is no
 * limit or no telling. Others take from it, too: it is no reservation. */
uint64_t han_room(const char *folder, uint64_t enough);

#endif
