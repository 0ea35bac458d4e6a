/* Reading and writing another process's memory (cross-memory attach). */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "engine.h"

int han_pull(int64_t pid, void *dst, uint64_t src, size_t n) {
    uint8_t *to = dst;
    while (n) {
        struct iovec here = {to, n}, there = {(void *)(uintptr_t)src, n};
        ssize_t got = process_vm_readv((pid_t)pid, &here, 1, &there, 1, 0);
        if (got <= 0) return got ? errno : EFAULT;
        to += got;
        src += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

int han_push(int64_t pid, uint64_t dst, const void *src, size_t n) {
    const uint8_t *from = src;
    while (n) {
        struct iovec here = {(void *)(uintptr_t)from, n}, there = {(void *)(uintptr_t)dst, n};
        ssize_t put = process_vm_writev((pid_t)pid, &here, 1, &there, 1, 0);
        if (put <= 0) return put ? errno : EFAULT;
        from += put;
        dst += (uint64_t)put;
        n -= (size_t)put;
    }
    return 0;
}

/* Where Yama restricts attaching to descendants, a process may name who else may: all may, whom
 * the system lets trace us otherwise (the same user). */
void han_let_attach(void) {
#ifdef PR_SET_PTRACER
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
}
