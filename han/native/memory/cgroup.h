/* The room below the memory limits of control groups: the kernel kills a process of a group that
 * exceeds its limit. */
#ifndef HAN_CGROUP_H
#define HAN_CGROUP_H

#include <stdint.h>

/* Bytes below the limit of a control group (version 1 or 2, by its folder); UINT64_MAX if it has no
 * limit or cannot be read. Memory of file caches that the kernel can take back counts as room, but
 * is looked at only where less than `enough` is left without it. This reserves nothing: other
 * processes may take the room at the same time. */
uint64_t han_room(const char *folder, uint64_t enough);

#endif
