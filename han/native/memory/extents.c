#define _GNU_SOURCE
#include "memory/extents.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LOOKS = 32 }; /* extents of one bin that are tried before the next bin */

static int bin_of(size_t pages) { return 63 - __builtin_clzll((unsigned long long)pages); }

static void mark(han_extents *x, han_extent *e) {
    x->at[e->page] = x->at[e->page + e->pages - 1] = e;
}

static void shelve(han_extents *x, han_extent *e, enum han_state state) {
    e->state = state;
    if (state == HAN_KEPT) x->kept += e->pages;
    mark(x, e);
    han_extent_push(&x->bins[state][bin_of(e->pages)], e);
}

static void unshelve(han_extents *x, han_extent *e) {
    if (e->state == HAN_KEPT) x->kept -= e->pages;
    han_extent_unlink(&x->bins[e->state][bin_of(e->pages)], e);
}

/* Put a free extent into its bin, joined with neighbours in the same state. */
static void shelve_joined(han_extents *x, han_extent *e, enum han_state state) {
    han_extent *left = e->page ? x->at[e->page - 1] : NULL;
    han_extent *right = e->page + e->pages < x->pages ? x->at[e->page + e->pages] : NULL;
    if (left && left->state == state) {
        unshelve(x, left);
        e->page = left->page;
        e->pages += left->pages;
        free(left);
    }
    if (right && right->state == state) {
        unshelve(x, right);
        e->pages += right->pages;
        free(right);
    }
    shelve(x, e, state);
}

/* Where so many pages can begin in an extent, at a multiple of `step`; SIZE_MAX if it has no
 * room. */
static size_t start_in(const han_extent *e, size_t pages, size_t step) {
    size_t start = (e->page + step - 1) / step * step, stop = e->page + e->pages;
    return start <= stop && pages <= stop - start ? start : SIZE_MAX;
}

static han_extent *find_at(const han_extents *x, enum han_state state, size_t pages, size_t step) {
    for (int bin = bin_of(pages); bin < HAN_BINS; bin++) {
        int looks = LOOKS;
        for (han_extent *e = x->bins[state][bin]; e && looks--; e = e->next)
            if (start_in(e, pages, step) != SIZE_MAX) return e;
    }
    return NULL;
}

/* An extent with room for so many pages, and where they begin: at a huge page if they fill one and
 * there is such room. */
static han_extent *find(const han_extents *x, enum han_state state, size_t pages, size_t *start) {
    size_t step = pages < HAN_HUGE_PAGES ? 1 : HAN_HUGE_PAGES;
    han_extent *e = find_at(x, state, pages, step);
    if (!e && step > 1) e = find_at(x, state, pages, step = 1);
    if (e) *start = start_in(e, pages, step);
    return e;
}

/* Give all kept memory back to the system, so that holes are as long as possible. */
static void drop_kept(han_extents *x) {
    for (int bin = 0; bin < HAN_BINS; bin++)
        for (han_extent *e; (e = x->bins[HAN_KEPT][bin]);) {
            unshelve(x, e);
            han_file_punch(&x->file, e->page, e->pages);
            shelve_joined(x, e, HAN_HOLE);
        }
}

/* Take so many pages out of an extent in a bin, and put the rest of it back; NULL if there is no
 * memory for the records. */
static han_extent *cut(han_extents *x, han_extent *e, size_t start, size_t pages) {
    size_t before = start - e->page, after = e->pages - pages - before;
    han_extent *rest[2] = {before ? calloc(1, sizeof *e) : NULL,
                           after ? calloc(1, sizeof *e) : NULL};
    if ((before && !rest[0]) || (after && !rest[1])) {
        free(rest[0]);
        free(rest[1]);
        return NULL;
    }
    unshelve(x, e);
    size_t from[2] = {e->page, start + pages}, length[2] = {before, after};
    for (int k = 0; k < 2; k++) {
        if (!rest[k]) continue;
        rest[k]->page = from[k];
        rest[k]->pages = length[k];
        shelve(x, rest[k], e->state);
    }
    e->page = start;
    e->pages = pages;
    mark(x, e);
    return e;
}

/* Take pages of a hole, without memory; NULL: no hole is long enough. */
static han_extent *cut_hole(han_extents *x, size_t pages) {
    size_t start;
    han_extent *e = find(x, HAN_HOLE, pages, &start);
    return e ? cut(x, e, start, pages) : NULL;
}

static han_extent *take_hole(han_extents *x, size_t pages) {
    han_extent *e = cut_hole(x, pages);
    if (!e) return NULL;
    int error = han_file_reserve(&x->file, e->page, pages);
    if (!error) return e;
    shelve_joined(x, e, HAN_HOLE);
    errno = error;
    return NULL;
}

han_extent *han_extents_take(han_extents *x, size_t pages, bool *clean) {
    errno = ENOMEM;
    size_t start;
    han_extent *e = find(x, HAN_KEPT, pages, &start);
    *clean = !e;
    if (e) e = cut(x, e, start, pages);
    if (!e) e = take_hole(x, pages);
    if (!e && x->kept) {
        drop_kept(x);
        *clean = true;
        errno = ENOMEM;
        e = take_hole(x, pages);
    }
    if (!e) return NULL;
    e->state = HAN_USED;
    x->taken += pages;
    return e;
}

han_extent *han_extents_take_bare(han_extents *x, size_t pages) {
    han_extent *e = cut_hole(x, pages);
    if (!e && x->kept) {
        drop_kept(x);
        e = cut_hole(x, pages);
    }
    if (!e) {
        errno = ENOMEM;
        return NULL;
    }
    e->state = HAN_BARE;
    return e;
}

void han_extents_give(han_extents *x, han_extent *e) {
    bool used = e->state != HAN_BARE, keep = used && x->kept + e->pages <= x->keep;
    if (used) x->taken -= e->pages;
    if (!keep) han_file_punch(&x->file, e->page, e->pages);
    shelve_joined(x, e, keep ? HAN_KEPT : HAN_HOLE);
}

int han_extents_open(han_extents *x, han_sparse_file file, size_t pages, size_t keep) {
    *x = (han_extents){.file = file, .pages = pages, .keep = keep};
    han_extent *all = calloc(1, sizeof *all);
    if (!all) return ENOMEM;
    x->at = mmap(NULL, pages * sizeof *x->at, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if ((void *)x->at == MAP_FAILED) {
        int error = errno;
        free(all);
        return error;
    }
    all->pages = pages;
    shelve(x, all, HAN_HOLE);
    return 0;
}

void han_extents_close(han_extents *x) {
    for (size_t page = 0, pages; page < x->pages; page += pages) {
        han_extent *e = x->at[page];
        pages = e->pages;
        free(e->free);
        free(e);
    }
}
