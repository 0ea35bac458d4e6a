/* Extents: consecutive pages of a sparse file, which arrays and slabs take and give back.
 *
 * All records about the memory lie outside of it, those of free memory too. A program that
 * writes to an array by mistake cannot damage them. Neither can a forked child that still writes
 * to memory which its parent has given back. */
#ifndef HAN_EXTENTS_H
#define HAN_EXTENTS_H

#include "memory/sparse_file.h"

enum { HAN_BINS = 48 };

/* Kept: free, but with its memory. Bare: in use, but parts of it may have no memory. */
enum han_state { HAN_HOLE, HAN_KEPT, HAN_USED, HAN_SLAB, HAN_BARE };

/* Neighbouring pages in one state. */
typedef struct han_extent {
    struct han_extent *prev, *next; /* in its bin, or in the list of slabs with free blocks */
    size_t page, pages;
    enum han_state state;
    /* of a slab: */
    uint32_t size, live, fresh; /* bytes of a block, blocks in use, blocks never used */
    uint32_t n_free;            /* blocks given back: */
    uint16_t *free;             /* their numbers; NULL if this is no slab */
} han_extent;

typedef struct {
    han_sparse_file file;
    size_t pages, taken, kept, keep; /* all; in use; kept; to keep at most */
    han_extent **at; /* by page: its extent; set for the first and last page, for all of a slab */
    han_extent *bins[2][HAN_BINS]; /* holes, and kept ones, by the power of two below their pages */
} han_extents;

/* Begin with one hole. 0 or errno. */
int han_extents_open(han_extents *, han_sparse_file, size_t pages, size_t keep);
/* Free the records of all extents. */
void han_extents_close(han_extents *);

/* Take so many pages; `clean` says whether they hold zeros. NULL: errno says why. */
han_extent *han_extents_take(han_extents *, size_t pages, bool *clean);
/* Take so many pages without memory; NULL: errno says why. */
han_extent *han_extents_take_bare(han_extents *, size_t pages);
void han_extents_give(han_extents *, han_extent *);

static inline uint8_t *han_extent_address(const han_extents *x, const han_extent *e) {
    return x->file.base + e->page * HAN_PAGE;
}

/* Lists of extents. */
static inline void han_extent_push(han_extent **list, han_extent *e) {
    e->prev = NULL;
    e->next = *list;
    if (*list) (*list)->prev = e;
    *list = e;
}

static inline void han_extent_unlink(han_extent **list, han_extent *e) {
    if (e->prev)
        e->prev->next = e->next;
    else
        *list = e->next;
    if (e->next) e->next->prev = e->prev;
}

#endif
