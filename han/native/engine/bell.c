#define _GNU_SOURCE
#include "engine/bell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *limit) {
    return syscall(SYS_futex, (uint32_t *)word, op, value, limit, NULL, 0);
}

void han_ring(const han_channel *ch) {
    han_control *c = han_records(ch);
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&c->sleepers, memory_order_relaxed)) return;
    atomic_fetch_add_explicit(&c->bell, 1, memory_order_release);
    (void)futex(&c->bell, FUTEX_WAKE, INT_MAX, NULL);
}

uint32_t han_bell_enter(const han_channel *ch) {
    han_control *c = han_records(ch);
    atomic_fetch_add_explicit(&c->sleepers, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&c->bell, memory_order_acquire);
}

void han_bell_sleep(const han_channel *ch, uint32_t number, uint32_t ns) {
    struct timespec limit = {0, (long)ns};
    (void)futex(&han_records(ch)->bell, FUTEX_WAIT, number, &limit);
}

void han_bell_leave(const han_channel *ch) {
    atomic_fetch_sub_explicit(&han_records(ch)->sleepers, 1, memory_order_relaxed);
}
