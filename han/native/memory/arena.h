/* An arena: memory for arrays that the other ranks of the node map too. It is a sparse file, mapped
 * once; large allocations take extents of pages, small ones take blocks of slabs. */
#ifndef HAN_ARENA_H
#define HAN_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct han_arena han_arena;

typedef struct {
    uint8_t *base;
    size_t size;        /* of the file */
    size_t taken, kept; /* bytes in use; bytes that are free but keep their memory */
    uint64_t refusals;  /* allocations that failed */
    size_t refused;     /* bytes that the last of them asked for */
    int error;          /* its reason. ENOMEM: no part of the file is long enough; EDQUOT: the limit
                         * of a control group leaves no room */
} han_arena_facts;

/* Map a file of `size` bytes without any memory. Free memory up to `keep` bytes stays in the file.
 * `touch`: only a write, not fallocate, makes the system use huge pages. On success the arena owns
 * `fd`. NULL: errno says why. */
han_arena *han_arena_open(int fd, size_t size, size_t keep, bool touch);
/* Refuse large allocations (EDQUOT) that the memory limits of these control groups leave no room
 * for. `groups`: their folders, NULL at the end; they must outlive the arena. */
void han_arena_limit(han_arena *, char **groups);
/* Unmap the arena. None of its memory may be used any more. */
void han_arena_close(han_arena *);

/* Any thread may call these. They return reserved memory: accessing it never raises a signal. In a
 * child process made by fork, allocations come from malloc, and giving back memory of the parent's
 * arena does nothing. */
void *han_arena_take(han_arena *, size_t bytes, bool zero);
void *han_arena_resize(han_arena *, void *, size_t bytes);
void han_arena_give(han_arena *, void *);

/* The same for memory that is added later: the bytes have none yet, and the caller may access those
 * only that it has filled. It is given back with han_arena_give. han_arena_fill returns 0 or errno.
 * In a child process made by fork, both fail (EPERM). */
void *han_arena_take_bare(han_arena *, size_t bytes);
int han_arena_fill(han_arena *, void *, size_t bytes);

/* Whether all these bytes are in the arena. */
bool han_arena_holds(const han_arena *, uint64_t address, uint64_t bytes);
han_arena_facts han_arena_tell(han_arena *);

#endif
