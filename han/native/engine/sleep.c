/* Sleeping in the kernel until a flag is posted.
 *
 * Each channel has a bell, a number that sleepers wait on, and counts them. Who posts a flag looks
 * at the count afterwards; who goes to sleep counts itself before it looks at the flags once more.
 * Both put a fence in between, and one of the fences comes first: either the sleeper sees the flag,
 * or the poster the sleeper. Posters only read the count: they need not own its line. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

enum {
    NAP_NS = 1000000, /* MPI, signals and dead peers want to be looked at */
    BRIEF_NS = 50000, /* and messages, and other channels, sooner */
};

static han_control *first(const han_channel *ch) {
    return (han_control *)(void *)(ch->memory + ch->control);
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *limit) {
    return syscall(SYS_futex, (uint32_t *)word, op, value, limit, NULL, 0);
}

void han_ring(const han_channel *ch) {
    han_control *c = first(ch);
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&c->sleepers, memory_order_relaxed)) return;
    atomic_fetch_add_explicit(&c->bell, 1, memory_order_release);
    (void)futex(&c->bell, FUTEX_WAKE, INT_MAX, NULL);
}

enum han_status han_doze(han_engine *e, bool *slept) {
    bool brief;
    int channel = han_engine_awaits(e, &brief);
    *slept = false;
    if (channel < 0 || !(e->bells >> channel & 1)) return HAN_BLOCKED;
    han_control *c = first(&e->channels[channel]);
    struct timespec limit = {0, brief ? BRIEF_NS : NAP_NS};
    atomic_fetch_add_explicit(&c->sleepers, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t bell = atomic_load_explicit(&c->bell, memory_order_acquire);
    enum han_status status = han_engine_step(e);
    if (status == HAN_BLOCKED) {
        *slept = true;
        (void)futex(&c->bell, FUTEX_WAIT, bell, &limit); /* or it has rung already, or a signal */
    }
    atomic_fetch_sub_explicit(&c->sleepers, 1, memory_order_relaxed);
    return status;
}
