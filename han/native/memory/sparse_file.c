#define _GNU_SOURCE
#include "memory/sparse_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/cgroup.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older systems refuse it */
#endif

enum {
    HUGE = HAN_HUGE_PAGES * HAN_PAGE,
    CHECKED = 1 << 20, /* bytes; below, limits of control groups are not read */
    SPARE = 4 << 20,   /* bytes below a limit that are left to the kernel's own needs */
    STRIDE = HUGE,     /* bytes of one fallocate: a signal makes the system undo one completely */
};

void *han_map_file(int fd, size_t size, int protection) {
    size_t room = size + HUGE, page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *from = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (from == MAP_FAILED) return from;
    size_t before = -(uintptr_t)from % HUGE, whole = (size + page - 1) / page * page;
    void *at = mmap(from + before, size, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    int error = errno;
    if (at == MAP_FAILED) { /* the failed mmap may have removed the range at `from` */
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

void han_file_punch(const han_sparse_file *f, size_t page, size_t pages) {
    while (pages &&
           fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(page * HAN_PAGE),
                     (off_t)(pages * HAN_PAGE)) &&
           errno == EINTR);
}

/* Write to the huge pages of holes: reserving them would fill them with small pages. If this fails,
 * reserving them returns the reason. */
static void touch(const han_sparse_file *f, size_t page, size_t pages) {
    size_t at = (page + HAN_HUGE_PAGES - 1) / HAN_HUGE_PAGES * HAN_HUGE_PAGES;
    while (at + HAN_HUGE_PAGES <= page + pages &&
           !madvise(f->base + at * HAN_PAGE, HUGE, MADV_POPULATE_WRITE))
        at += HAN_HUGE_PAGES;
}

/* Whether a limit of a control group leaves no room: the kernel would kill a process then. Other
 * processes may take the room at the same time. */
static bool is_beyond(const han_sparse_file *f, size_t bytes) {
    for (char **group = bytes < CHECKED ? NULL : f->groups; group && *group; group++)
        if (han_room(*group, bytes + SPARE) < bytes + SPARE) return true;
    return false;
}

int han_file_reserve(const han_sparse_file *f, size_t page, size_t pages) {
    if (is_beyond(f, pages * HAN_PAGE)) return EDQUOT;
    if (f->touch) touch(f, page, pages);
    size_t stop = (page + pages) * HAN_PAGE;
    for (size_t at = page * HAN_PAGE, n; at < stop; at += n) {
        n = stop - at < STRIDE ? stop - at : STRIDE;
        while (fallocate(f->fd, 0, (off_t)at, (off_t)n)) {
            int error = errno;
            if (error == EINTR) continue;
            han_file_punch(f, page, (at - page * HAN_PAGE) / HAN_PAGE);
            return error;
        }
    }
    return 0;
}
