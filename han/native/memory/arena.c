/* The allocator of an arena. What describes the memory lies outside of it, free blocks included:
 * nothing that is written there can lead it astray, also not by a forked child, which goes on
 * writing to what this process has given back. */
#define _GNU_SOURCE
#include "arena.h"
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones refuse it */
#endif

enum {
    PAGE = 4096,
    SLAB_PAGES = 16,
    LEAST = 64, /* bytes of the smallest blocks: a cache line each, as vector loads like it */
    CLASSES = 6, /* 64 to 2048 bytes; what is larger takes pages */
    BINS = 48,
    LOOKS = 32,              /* extents of a bin that are tried before larger ones are */
    HUGE_PAGES = 512,        /* in a huge page */
    HUGE = HUGE_PAGES * PAGE,
    HEEDED = 1 << 20,        /* bytes: limits of control groups are read for more */
    SPARE = 4 << 20,         /* bytes of them that are left to what the kernel needs besides */
    STRIDE = HUGE,           /* reserved at a time: a signal makes the system give all of it up */
};

enum state { HOLE, KEPT, USED, SLAB }; /* holes are in no memory, and read as zeros */

/* Neighbouring pages of one fate; or a slab, whose blocks are of one size. */
typedef struct extent {
    struct extent *prev, *next; /* in its bin, or among the slabs of its class that have room */
    size_t page, pages;
    enum state state;
    uint32_t size, live, fresh; /* of a slab: bytes of a block, blocks in use, blocks never used */
    uint32_t n_free;            /* and how many were given back: */
    uint16_t *free;             /* their numbers; NULL where it is no slab */
} extent;

struct han_arena {
    int fd;
    uint8_t *base;
    size_t pages, taken, kept, keep, refused;
    uint64_t refusals;
    int error;
    char **groups; /* whose limits count; NULL at the end */
    bool touch; /* huge pages come to who writes first, not to who reserves */
    unsigned generation; /* of the process that made it: see below */
    extent **at; /* by page: who has it, for the first and last page of an extent, all of a slab */
    extent *bins[2][BINS]; /* of holes and of what is kept, by the power of two below their pages */
    extent *slabs[CLASSES];
    pthread_mutex_t lock;
};

/* A child process made by fork has the same memory, but its changes to what describes it are its
 * own: it must not hand any of it out, nor give any back. */
static unsigned generation;
static void next_generation(void) { generation++; }
static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, next_generation); }
static pthread_once_t watched = PTHREAD_ONCE_INIT;

static bool foreign(const han_arena *a) { return a->generation != generation; }

static uint8_t *address(const han_arena *a, const extent *e) { return a->base + e->page * PAGE; }

/* ---- extents ------------------------------------------------------------------------------ */

static int bin_of(size_t pages) { return 63 - __builtin_clzll((unsigned long long)pages); }

static void push(extent **list, extent *e) {
    e->prev = NULL;
    e->next = *list;
    if (*list) (*list)->prev = e;
    *list = e;
}

static void unlink_from(extent **list, extent *e) {
    if (e->prev)
        e->prev->next = e->next;
    else
        *list = e->next;
    if (e->next) e->next->prev = e->prev;
}

static void mark(han_arena *a, extent *e) {
    a->at[e->page] = a->at[e->page + e->pages - 1] = e;
}

static void shelve(han_arena *a, extent *e, enum state state) {
    e->state = state;
    if (state == KEPT) a->kept += e->pages;
    mark(a, e);
    push(&a->bins[state][bin_of(e->pages)], e);
}

static void unshelve(han_arena *a, extent *e) {
    if (e->state == KEPT) a->kept -= e->pages;
    unlink_from(&a->bins[e->state][bin_of(e->pages)], e);
}

/* Shelve what is free, joined with free neighbours of the same state. */
static extent *shelve_joined(han_arena *a, extent *e, enum state state) {
    extent *left = e->page ? a->at[e->page - 1] : NULL;
    extent *right = e->page + e->pages < a->pages ? a->at[e->page + e->pages] : NULL;
    if (left && left->state == state) {
        unshelve(a, left);
        e->page = left->page;
        e->pages += left->pages;
        free(left);
    }
    if (right && right->state == state) {
        unshelve(a, right);
        e->pages += right->pages;
        free(right);
    }
    shelve(a, e, state);
    return e;
}

/* Where so many pages begin in an extent at a multiple of `step`; SIZE_MAX if there is no room. */
static size_t start_in(const extent *e, size_t pages, size_t step) {
    size_t start = (e->page + step - 1) / step * step, stop = e->page + e->pages;
    return start <= stop && pages <= stop - start ? start : SIZE_MAX;
}

static extent *find_at(const han_arena *a, enum state state, size_t pages, size_t step) {
    for (int bin = bin_of(pages); bin < BINS; bin++) {
        int looks = LOOKS;
        for (extent *e = a->bins[state][bin]; e && looks--; e = e->next)
            if (start_in(e, pages, step) != SIZE_MAX) return e;
    }
    return NULL;
}

/* An extent with room for so many pages, and where they begin: at a huge page, if they fill one
 * and there is room. */
static extent *find(const han_arena *a, enum state state, size_t pages, size_t *start) {
    size_t step = pages < HUGE_PAGES ? 1 : HUGE_PAGES;
    extent *e = find_at(a, state, pages, step);
    if (!e && step > 1) e = find_at(a, state, pages, step = 1);
    if (e) *start = start_in(e, pages, step);
    return e;
}

static void punch(const han_arena *a, size_t page, size_t pages) {
    while (pages && fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              (off_t)(page * PAGE), (off_t)(pages * PAGE)) &&
           errno == EINTR)
        ;
}

/* Write to the huge pages of holes, which reserving alone would fill with small ones. Where that
 * cannot be done, reserving says why. */
static void touch(const han_arena *a, size_t page, size_t pages) {
    size_t at = (page + HUGE_PAGES - 1) / HUGE_PAGES * HUGE_PAGES;
    while (at + HUGE_PAGES <= page + pages &&
           !madvise(a->base + at * PAGE, HUGE, MADV_POPULATE_WRITE))
        at += HUGE_PAGES;
}

/* The limits of control groups leave no room: the kernel would say so by killing a process. What others
 * take at the same time is not seen, nor are small parts looked at. */
static bool is_beyond(const han_arena *a, size_t bytes) {
    for (char **group = bytes < HEEDED ? NULL : a->groups; group && *group; group++)
        if (han_room(*group, bytes + SPARE) < bytes + SPARE) return true;
    return false;
}

/* Reserve holes before anybody touches them: 0 or errno, with nothing reserved. */
static int reserve(const han_arena *a, size_t page, size_t pages) {
    if (is_beyond(a, pages * PAGE)) return EDQUOT;
    if (a->touch) touch(a, page, pages);
    size_t stop = (page + pages) * PAGE;
    for (size_t at = page * PAGE, n; at < stop; at += n) {
        n = stop - at < STRIDE ? stop - at : STRIDE;
        while (fallocate(a->fd, 0, (off_t)at, (off_t)n)) {
            int error = errno;
            if (error == EINTR) continue;
            punch(a, page, (at - page * PAGE) / PAGE);
            return error;
        }
    }
    return 0;
}

/* Give all that is kept back to the system, so that the holes are as long as can be. */
static void drop_kept(han_arena *a) {
    for (int bin = 0; bin < BINS; bin++)
        for (extent *e; (e = a->bins[KEPT][bin]);) {
            unshelve(a, e);
            punch(a, e->page, e->pages);
            (void)shelve_joined(a, e, HOLE);
        }
}

/* Take so many pages out of an extent that is on a shelf, where what is left of it stays; NULL if
 * there is no memory to describe that. */
static extent *cut(han_arena *a, extent *e, size_t start, size_t pages) {
    size_t before = start - e->page, after = e->pages - pages - before;
    extent *rest[2] = {before ? calloc(1, sizeof *e) : NULL, after ? calloc(1, sizeof *e) : NULL};
    if ((before && !rest[0]) || (after && !rest[1])) {
        free(rest[0]);
        free(rest[1]);
        return NULL;
    }
    unshelve(a, e);
    size_t from[2] = {e->page, start + pages}, length[2] = {before, after};
    for (int k = 0; k < 2; k++) {
        if (!rest[k]) continue;
        rest[k]->page = from[k];
        rest[k]->pages = length[k];
        shelve(a, rest[k], e->state);
    }
    e->page = start;
    e->pages = pages;
    mark(a, e);
    return e;
}

static extent *take_hole(han_arena *a, size_t pages) {
    size_t start;
    extent *e = find(a, HOLE, pages, &start);
    if (!e || !(e = cut(a, e, start, pages))) return NULL;
    int error = reserve(a, e->page, pages);
    if (!error) return e;
    (void)shelve_joined(a, e, HOLE);
    errno = error;
    return NULL;
}

/* An extent of so many pages; `clean` says whether it holds zeros. NULL: errno says why. */
static extent *take_pages(han_arena *a, size_t pages, bool *clean) {
    errno = ENOMEM;
    size_t start;
    extent *e = find(a, KEPT, pages, &start);
    *clean = !e;
    if (e) e = cut(a, e, start, pages);
    if (!e) e = take_hole(a, pages);
    if (!e && a->kept) {
        drop_kept(a);
        *clean = true;
        errno = ENOMEM;
        e = take_hole(a, pages);
    }
    if (!e) return NULL;
    e->state = USED;
    a->taken += pages;
    return e;
}

static void give_pages(han_arena *a, extent *e) {
    a->taken -= e->pages;
    if (a->kept + e->pages <= a->keep) {
        (void)shelve_joined(a, e, KEPT);
        return;
    }
    punch(a, e->page, e->pages);
    (void)shelve_joined(a, e, HOLE);
}

/* ---- blocks of slabs ---------------------------------------------------------------------- */

static int class_of(size_t bytes) {
    int class = 0;
    while ((size_t)LEAST << class < bytes) class++;
    return class;
}

static extent *new_slab(han_arena *a, int class) {
    bool clean;
    uint32_t size = (uint32_t)LEAST << class, blocks = SLAB_PAGES * PAGE / size;
    uint16_t *numbers = malloc(blocks * sizeof *numbers);
    extent *e = numbers ? take_pages(a, SLAB_PAGES, &clean) : NULL;
    if (!e) {
        int error = numbers ? errno : ENOMEM;
        free(numbers);
        errno = error;
        return NULL;
    }
    e->state = SLAB;
    e->size = size;
    e->live = e->n_free = 0;
    e->fresh = blocks;
    e->free = numbers;
    for (size_t k = 0; k < SLAB_PAGES; k++) a->at[e->page + k] = e;
    push(&a->slabs[class], e);
    return e;
}

static bool full(const extent *e) { return !e->n_free && !e->fresh; }

static void *take_block(han_arena *a, int class) {
    extent *e = a->slabs[class] ? a->slabs[class] : new_slab(a, class);
    if (!e) return NULL;
    size_t number = e->n_free ? e->free[--e->n_free] : --e->fresh;
    e->live++;
    if (full(e)) unlink_from(&a->slabs[class], e);
    return address(a, e) + number * e->size;
}

static void give_block(han_arena *a, extent *e, const uint8_t *block) {
    int class = class_of(e->size);
    if (full(e)) push(&a->slabs[class], e);
    e->free[e->n_free++] = (uint16_t)((size_t)(block - address(a, e)) / e->size);
    bool last = a->slabs[class] == e && !e->next; /* one is left for those to come */
    if (--e->live || last) return;
    unlink_from(&a->slabs[class], e);
    free(e->free);
    e->free = NULL;
    give_pages(a, e);
}

/* ---- what the others call ----------------------------------------------------------------- */

void *han_arena_map(int fd, size_t size, int protection) {
    size_t room = size + HUGE, page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *from = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (from == MAP_FAILED) return from;
    size_t before = -(uintptr_t)from % HUGE, whole = (size + page - 1) / page * page;
    void *at = mmap(from + before, size, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    int error = errno;
    if (at == MAP_FAILED) { /* what was there may be gone already */
        (void)munmap(from, room);
        errno = error;
        return at;
    }
    if (before) (void)munmap(from, before);
    if (before + whole < room) (void)munmap(from + before + whole, room - before - whole);
#ifdef MADV_HUGEPAGE
    (void)madvise(at, size, MADV_HUGEPAGE);
#endif
    return at;
}

han_arena *han_arena_open(int fd, size_t size, size_t keep, bool touch) {
    (void)pthread_once(&watched, watch_forks);
    size_t pages = size / PAGE;
    han_arena *a = calloc(1, sizeof *a);
    extent *all = calloc(1, sizeof *all);
    if (!a || !all || !pages) goto failed;
    a->base = han_arena_map(fd, pages * PAGE, PROT_READ | PROT_WRITE);
    a->at = mmap(NULL, pages * sizeof *a->at, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a->base == MAP_FAILED || (void *)a->at == MAP_FAILED) goto failed;
    (void)pthread_mutex_init(&a->lock, NULL);
    a->fd = fd;
    a->pages = all->pages = pages;
    a->keep = keep / PAGE;
    a->touch = touch;
    a->generation = generation;
    shelve(a, all, HOLE);
    return a;
failed:;
    int error = errno;
    if (a && a->base && a->base != MAP_FAILED) (void)munmap(a->base, pages * PAGE);
    if (a && a->at && (void *)a->at != MAP_FAILED) (void)munmap(a->at, pages * sizeof *a->at);
    free(a);
    free(all);
    errno = error ? error : EINVAL;
    return NULL;
}

void han_arena_heed(han_arena *a, char **groups) { a->groups = groups; }

void han_arena_close(han_arena *a) {
    /* Another thread may have been in the middle of a change when this process was forked. */
    for (size_t page = 0, pages; page < a->pages && !foreign(a); page += pages) {
        extent *e = a->at[page];
        pages = e->pages;
        free(e->free);
        free(e);
    }
    (void)munmap(a->base, a->pages * PAGE);
    (void)munmap(a->at, a->pages * sizeof *a->at);
    (void)close(a->fd);
    free(a);
}

static void *take_locked(han_arena *a, size_t bytes, bool *clean) {
    *clean = false;
    if (bytes <= (size_t)LEAST << (CLASSES - 1)) return take_block(a, class_of(bytes));
    size_t pages = bytes / PAGE + !!(bytes % PAGE);
    extent *e = NULL;
    if (pages <= a->pages)
        e = take_pages(a, pages, clean);
    else
        errno = ENOMEM;
    return e ? address(a, e) : NULL;
}

void *han_arena_take(han_arena *a, size_t bytes, bool zero) {
    if (foreign(a)) return zero ? calloc(1, bytes ? bytes : 1) : malloc(bytes ? bytes : 1);
    bool clean;
    (void)pthread_mutex_lock(&a->lock);
    void *p = take_locked(a, bytes, &clean);
    if (!p) {
        a->error = errno;
        a->refused = bytes;
        a->refusals++;
    }
    (void)pthread_mutex_unlock(&a->lock);
    if (p && zero && !clean) memset(p, 0, bytes);
    return p;
}

static extent *owner(const han_arena *a, const void *p) {
    return a->at[(size_t)((const uint8_t *)p - a->base) / PAGE];
}

void han_arena_give(han_arena *a, void *p) {
    if (!p) return;
    if (!han_arena_holds(a, (uint64_t)(uintptr_t)p, 1)) {
        free(p);
        return;
    }
    if (foreign(a)) return;
    (void)pthread_mutex_lock(&a->lock);
    extent *e = owner(a, p);
    if (e->state == SLAB)
        give_block(a, e, p);
    else
        give_pages(a, e);
    (void)pthread_mutex_unlock(&a->lock);
}

void *han_arena_resize(han_arena *a, void *p, size_t bytes) {
    if (!p) return han_arena_take(a, bytes, false);
    if (!han_arena_holds(a, (uint64_t)(uintptr_t)p, 1)) return realloc(p, bytes ? bytes : 1);
    const extent *e = owner(a, p); /* it stays as it is while `p` is in use: no lock */
    size_t room = e->state == SLAB ? e->size : e->pages * PAGE;
    if (bytes <= room && bytes >= room / 2 && !foreign(a)) return p;
    void *other = han_arena_take(a, bytes, false);
    if (!other) return NULL;
    memcpy(other, p, bytes < room ? bytes : room);
    han_arena_give(a, p);
    return other;
}

bool han_arena_holds(const han_arena *a, uint64_t from, uint64_t bytes) {
    uint64_t base = (uint64_t)(uintptr_t)a->base, size = a->pages * (uint64_t)PAGE;
    return from >= base && bytes <= size && from - base <= size - bytes;
}

han_arena_facts han_arena_tell(han_arena *a) {
    bool locks = !foreign(a);
    if (locks) (void)pthread_mutex_lock(&a->lock);
    han_arena_facts facts = {a->base, a->pages * PAGE, a->taken * PAGE, a->kept * PAGE,
                             a->refusals, a->refused, a->error};
    if (locks) (void)pthread_mutex_unlock(&a->lock);
    return facts;
}
