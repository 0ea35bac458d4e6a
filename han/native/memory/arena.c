#define _GNU_SOURCE
#include "memory/arena.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/slabs.h"

struct han_arena {
    han_extents extents;
    han_slabs slabs;
    size_t refused;
    uint64_t refusals;
    int error;
    unsigned generation; /* of the process that made it */
    pthread_mutex_t lock;
};

/* A child process made by fork shares the memory with its parent, but has its own copy of the
 * records about it: it must neither take nor give back any of the memory. Each fork therefore
 * increments this number in the child. */
static unsigned generation;
static void next_generation(void) { generation++; }
static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, next_generation); }
static pthread_once_t watched = PTHREAD_ONCE_INIT;

static bool foreign(const han_arena *a) { return a->generation != generation; }

han_arena *han_arena_open(int fd, size_t size, size_t keep, bool touch) {
    (void)pthread_once(&watched, watch_forks);
    size_t pages = size / HAN_PAGE;
    han_arena *a = calloc(1, sizeof *a);
    int error = !a ? ENOMEM : !pages ? EINVAL : 0;
    if (!error) {
        han_sparse_file file = {.fd = fd, .touch = touch};
        file.base = han_map_file(fd, pages * HAN_PAGE, PROT_READ | PROT_WRITE);
        if (file.base == MAP_FAILED)
            error = errno;
        else if ((error = han_extents_open(&a->extents, file, pages, keep / HAN_PAGE)))
            (void)munmap(file.base, pages * HAN_PAGE);
    }
    if (error) {
        free(a);
        errno = error;
        return NULL;
    }
    (void)pthread_mutex_init(&a->lock, NULL);
    a->generation = generation;
    return a;
}

void han_arena_limit(han_arena *a, char **groups) { a->extents.file.groups = groups; }

void han_arena_close(han_arena *a) {
    /* In a forked child the records may be inconsistent: another thread of the parent may have been
     * changing them. */
    if (!foreign(a)) han_extents_close(&a->extents);
    (void)munmap(a->extents.file.base, a->extents.pages * HAN_PAGE);
    (void)munmap(a->extents.at, a->extents.pages * sizeof *a->extents.at);
    (void)close(a->extents.file.fd);
    free(a);
}

static void *take_locked(han_arena *a, size_t bytes, bool *clean) {
    *clean = false;
    if (bytes <= HAN_BLOCK_MOST) return han_slabs_take(&a->slabs, &a->extents, bytes);
    size_t pages = bytes / HAN_PAGE + !!(bytes % HAN_PAGE);
    han_extent *e = NULL;
    if (pages <= a->extents.pages)
        e = han_extents_take(&a->extents, pages, clean);
    else
        errno = ENOMEM;
    return e ? han_extent_address(&a->extents, e) : NULL;
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

void *han_arena_take_bare(han_arena *a, size_t bytes) {
    if (foreign(a)) {
        errno = EPERM;
        return NULL;
    }
    (void)pthread_mutex_lock(&a->lock);
    han_extent *e = han_extents_take_bare(&a->extents, bytes / HAN_PAGE + !!(bytes % HAN_PAGE));
    (void)pthread_mutex_unlock(&a->lock);
    return e ? han_extent_address(&a->extents, e) : NULL;
}

int han_arena_fill(han_arena *a, void *p, size_t bytes) {
    if (foreign(a)) return EPERM;
    uint64_t from = (uint64_t)((uint8_t *)p - a->extents.file.base), stop = from + bytes;
    (void)pthread_mutex_lock(&a->lock);
    int error = han_file_reserve(&a->extents.file, from / HAN_PAGE,
                                 (stop + HAN_PAGE - 1) / HAN_PAGE - from / HAN_PAGE);
    (void)pthread_mutex_unlock(&a->lock);
    return error;
}

static han_extent *owner(const han_arena *a, const void *p) {
    return a->extents.at[(size_t)((const uint8_t *)p - a->extents.file.base) / HAN_PAGE];
}

void han_arena_give(han_arena *a, void *p) {
    if (!p) return;
    if (!han_arena_holds(a, (uint64_t)(uintptr_t)p, 1)) {
        free(p);
        return;
    }
    if (foreign(a)) return;
    (void)pthread_mutex_lock(&a->lock);
    han_extent *e = owner(a, p);
    if (e->state == HAN_SLAB)
        han_slabs_give(&a->slabs, &a->extents, e, p);
    else
        han_extents_give(&a->extents, e);
    (void)pthread_mutex_unlock(&a->lock);
}

void *han_arena_resize(han_arena *a, void *p, size_t bytes) {
    if (!p) return han_arena_take(a, bytes, false);
    if (!han_arena_holds(a, (uint64_t)(uintptr_t)p, 1)) return realloc(p, bytes ? bytes : 1);
    const han_extent *e = owner(a, p); /* no lock: it does not change while `p` is in use */
    size_t room = e->state == HAN_SLAB ? e->size : e->pages * HAN_PAGE;
    if (bytes <= room && bytes >= room / 2 && !foreign(a)) return p;
    void *other = han_arena_take(a, bytes, false);
    if (!other) return NULL;
    memcpy(other, p, bytes < room ? bytes : room);
    han_arena_give(a, p);
    return other;
}

bool han_arena_holds(const han_arena *a, uint64_t from, uint64_t bytes) {
    uint64_t base = (uint64_t)(uintptr_t)a->extents.file.base;
    uint64_t size = a->extents.pages * (uint64_t)HAN_PAGE;
    return from >= base && bytes <= size && from - base <= size - bytes;
}

han_arena_facts han_arena_tell(han_arena *a) {
    bool locks = !foreign(a);
    if (locks) (void)pthread_mutex_lock(&a->lock);
    const han_extents *x = &a->extents;
    han_arena_facts facts = {x->file.base,
                             x->pages * HAN_PAGE,
                             x->taken * HAN_PAGE,
                             x->kept * HAN_PAGE,
                             a->refusals,
                             a->refused,
                             a->error};
    if (locks) (void)pthread_mutex_unlock(&a->lock);
    return facts;
}
