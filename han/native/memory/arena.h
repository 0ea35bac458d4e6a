/* Memory for arrays that the other ranks of the node map too: a sparse file, mapped once, that is
 * handed out in extents of pages, and in blocks of slabs below a page. It knows no Python. */
#ifndef HAN_ARENA_H
#define HAN_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct han_arena han_arena;

typedef struct {
    uint8_t *base;
    size_t size;           /* of the file, whatever is taken of it */
    size_t taken, kept;    /* bytes in use, and free but still there for the next to come */
    uint64_t refusals;     /* allocations that there was no room for */
    size_t refused;        /* bytes that the last of them asked for */
    int error;             /* and why: ENOMEM where no part of the file was long enough, EDQUOT where
                            * a control group's limit leaves no room */
} han_arena_facts;

/* Map a file of `size` bytes, all of it holes; free memory up to `keep` bytes stays in it. `touch`
 * says that huge pages come to who writes first. The arena owns `fd` then. NULL: errno says why. */
han_arena *han_arena_open(int fd, size_t size, size_t keep, bool touch);
/* Map a file from its beginning, at an address that huge pages can be mapped at; or MAP_FAILED. */
void *han_arena_map(int fd, size_t size, int protection);
/* Take no large part of the file that the memory limits of these control groups (folders, NULL at the
 * end, which stay) leave no room for: EDQUOT. */
void han_arena_heed(han_arena *, char **groups);
/* Unmap it: nothing of it may be used any more. */
void han_arena_close(han_arena *);

/* Any thread may call these. What they return is reserved: to touch it never raises a signal.
 * In a child process made by fork the arena is the parent's: what is asked for there comes from
 * malloc, and what is given back of the parent's stays. */
void *han_arena_take(han_arena *, size_t bytes, bool zero);
void *han_arena_resize(han_arena *, void *, size_t bytes);
void han_arena_give(han_arena *, void *);

bool han_arena_holds(const han_arena *, uint64_t address, uint64_t bytes);
han_arena_facts han_arena_tell(han_arena *);

#endif
