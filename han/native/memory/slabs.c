#include "memory/slabs.h"

#include <errno.h>
#include <stdlib.h>

enum { SLAB_PAGES = 16 };

static int class_of(size_t bytes) {
    int class = 0;
    while ((size_t)HAN_BLOCK_LEAST << class < bytes) class++;
    return class;
}

static han_extent *new_slab(han_slabs *s, han_extents *x, int class) {
    bool clean;
    uint32_t size = (uint32_t)HAN_BLOCK_LEAST << class, blocks = SLAB_PAGES * HAN_PAGE / size;
    uint16_t *numbers = malloc(blocks * sizeof *numbers);
    han_extent *e = numbers ? han_extents_take(x, SLAB_PAGES, &clean) : NULL;
    if (!e) {
        int error = numbers ? errno : ENOMEM;
        free(numbers);
        errno = error;
        return NULL;
    }
    e->state = HAN_SLAB;
    e->size = size;
    e->live = e->n_free = 0;
    e->fresh = blocks;
    e->free = numbers;
    for (size_t k = 0; k < SLAB_PAGES; k++) x->at[e->page + k] = e;
    han_extent_push(&s->with_room[class], e);
    return e;
}

static bool full(const han_extent *e) { return !e->n_free && !e->fresh; }

void *han_slabs_take(han_slabs *s, han_extents *x, size_t bytes) {
    int class = class_of(bytes);
    han_extent *e = s->with_room[class] ? s->with_room[class] : new_slab(s, x, class);
    if (!e) return NULL;
    size_t number = e->n_free ? e->free[--e->n_free] : --e->fresh;
    e->live++;
    if (full(e)) han_extent_unlink(&s->with_room[class], e);
    return han_extent_address(x, e) + number * e->size;
}

void han_slabs_give(han_slabs *s, han_extents *x, han_extent *e, const uint8_t *block) {
    int class = class_of(e->size);
    if (full(e)) han_extent_push(&s->with_room[class], e);
    e->free[e->n_free++] = (uint16_t)((size_t)(block - han_extent_address(x, e)) / e->size);
    bool last = s->with_room[class] == e && !e->next; /* keep one for the next allocation */
    if (--e->live || last) return;
    han_extent_unlink(&s->with_room[class], e);
    free(e->free);
    e->free = NULL;
    han_extents_give(x, e);
}
