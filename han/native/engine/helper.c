#define _GNU_SOURCE
#include "engine/helper.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#include "clock.h"
#include "engine/queue.h"

enum {
    LOOKS_BEFORE_SLEEP = 64, /* without any run under way */
    LONGEST_LOOK = 4,        /* times `look_ns`, while nothing has to be taken over */
    FIRST_NAP_NS = 5000,     /* between two steps that did nothing; doubled each time */
    LAST_NAP_NS = 100000,
    TIMER_SLACK_NS = 1000,
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    _Atomic bool off, started, asleep, stop;
    bool ended;       /* no thread is started any more */
    _Atomic int runs; /* under way */
    han_helper_way way;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void sleep_until_woken(void) {
    pthread_mutex_lock(&helper.lock);
    helper.asleep = true;
    while (helper.asleep && !helper.stop && !helper.runs)
        pthread_cond_wait(&helper.wake, &helper.lock);
    helper.asleep = false;
    pthread_mutex_unlock(&helper.lock);
}

/* Step what is left alone until somebody else steps it, or nothing is under way. Returns whether
 * anything was left alone. */
static bool take_over(han_helper_way way) {
    unsigned how = (way.mpi ? HAN_OVER_WITH_MPI : 0) | (way.look_ns ? 0 : HAN_OVER_AT_ONCE);
    uint32_t rest = FIRST_NAP_NS, most = way.look_ns > LAST_NAP_NS ? way.look_ns : LAST_NAP_NS;
    bool any = false;
    while (!helper.stop && helper.runs) {
        enum han_status status = han_take_over(how);
        if (way.collect && way.mpi) way.collect();
        if (status == HAN_OK) break;
        any = true;
        if (status == HAN_MOVED) {
            rest = FIRST_NAP_NS;
            sched_yield(); /* a computing thread may need this processor */
        } else {
            han_nap(rest);
            rest = rest < most / 2 ? rest * 2 : most;
        }
    }
    return any;
}

static han_helper_way way_now(void) {
    pthread_mutex_lock(&helper.lock);
    han_helper_way way = helper.way;
    pthread_mutex_unlock(&helper.lock);
    return way;
}

static void *work(void *unused) {
    (void)unused;
    uint32_t idle = 0, wait = 1;
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    while (!helper.stop) {
        if (!helper.runs && idle++ > LOOKS_BEFORE_SLEEP) sleep_until_woken();
        if (helper.runs) idle = 0;
        han_helper_way way = way_now();
        bool needed = helper.runs && take_over(way);
        wait = needed ? 1 : wait < LONGEST_LOOK ? wait + 1 : wait;
        han_nap(way.look_ns ? way.look_ns * wait : LAST_NAP_NS);
    }
    return NULL;
}

/* In the child of a fork there is no helper, and none is needed: its parent is the rank. */
static void after_fork(void) {
    han_after_fork();
    helper.started = false;
    helper.off = true;
}

/* Start the thread, with all signals blocked: they are for the program's own threads. */
static void start(void) {
    static bool prepared;
    sigset_t all, before;
    if (!prepared) prepared = !pthread_atfork(NULL, NULL, after_fork);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    helper.started = !pthread_create(&helper.thread, NULL, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void han_helper_set(han_helper_way way) {
    pthread_mutex_lock(&helper.lock);
    helper.way = way;
    helper.off = way.off;
    pthread_mutex_unlock(&helper.lock);
    if (helper.runs) han_helper_wake(); /* those that began while it was off */
}

void han_helper_count(int change) {
    atomic_fetch_add(&helper.runs, change); /* before `asleep` is read */
}

int han_helper_load(void) { return atomic_load_explicit(&helper.runs, memory_order_relaxed); }

void han_helper_wake(void) {
    if (helper.off || (helper.started && !helper.asleep)) return;
    pthread_mutex_lock(&helper.lock);
    if (!helper.started && !helper.stop && !helper.ended) start();
    helper.asleep = false;
    pthread_cond_signal(&helper.wake);
    pthread_mutex_unlock(&helper.lock);
}

void han_helper_stop(bool for_ever) {
    pthread_mutex_lock(&helper.lock);
    bool mine = helper.started;
    pthread_t thread = helper.thread;
    helper.stop = helper.stop || mine;
    helper.started = false;
    helper.ended = helper.ended || for_ever;
    pthread_cond_signal(&helper.wake);
    pthread_mutex_unlock(&helper.lock);
    if (!mine) return;
    pthread_join(thread, NULL);
    helper.stop = false;
}

bool han_helper_runs(void) { return helper.started; }
