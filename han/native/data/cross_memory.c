#define _GNU_SOURCE
#include "data/cross_memory.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/uio.h>

typedef ssize_t transfer(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                         unsigned long, unsigned long);

/* One call may move fewer bytes than requested. */
static int move_all(transfer *some, int64_t pid, uint8_t *here, uint64_t there, size_t n) {
    while (n) {
        struct iovec mine = {here, n}, theirs = {(void *)(uintptr_t)there, n};
        ssize_t moved = some((pid_t)pid, &mine, 1, &theirs, 1, 0);
        if (moved <= 0) return moved ? errno : EFAULT;
        here += moved;
        there += (uint64_t)moved;
        n -= (size_t)moved;
    }
    return 0;
}

int han_pull(int64_t pid, void *dst, uint64_t src, size_t n) {
    return move_all(process_vm_readv, pid, dst, src, n);
}

int han_push(int64_t pid, uint64_t dst, const void *src, size_t n) {
    return move_all(process_vm_writev, pid, (uint8_t *)(uintptr_t)src, dst, n);
}

/* The Yama security module lets a process attach to its descendants only. The target may lift that
 * for all processes; the other checks of the system (the same user) still apply. */
void han_let_attach(void) {
#ifdef PR_SET_PTRACER
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
}
