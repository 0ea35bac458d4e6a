/* What an engine does on errors: timeouts, peers that died, interrupts, notices, errors of the
 * message layer, and stopping with receives under way. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "engine/stepping.h"
#include "engine/queue.h"
#include "group.h"

static const han_wait_policy QUICK = {.spins = 5, .timeout = 0.3}, PATIENT = {.timeout = 20};

/* ---- small plans, written by hand ---- */

static han_instr message(enum han_code code, int peer, uint64_t n, uint32_t slot) {
    han_instr i = {.code = (uint16_t)code, .peer = peer, .n = n, .slot = slot};
    if (code == HAN_TEST) return i;
    i.base[0] = HAN_B_RECV;
    i.base[1] = HAN_B_SEND;
    return i;
}

typedef struct {
    han_instr code[4];
    uint64_t requests[2];
    han_plan plan;
    han_run run;
} call;

static void call_open(call *c, uint32_t n, const void *send, void *recv) {
    c->plan = (han_plan){.code = c->code,
                         .n_streams = 1,
                         .streams = {{0, n}},
                         .n_requests = 2,
                         .requests = c->requests,
                         .element = 8};
    c->run = (han_run){.plan = &c->plan, .send = send, .recv = recv};
}

static enum han_status run(han_engine *e, call *c) {
    han_enqueue(e, &c->run);
    return han_progress(e, &c->run, true);
}

/* A call that waits for rank 1's flag. */
static void waiting_call(call *c) {
    *c = (call){.code = {at_flag(HAN_WAIT, 1, 1)}};
    call_open(c, 1, NULL, NULL);
}

static group *pair(bool messages, han_wait_policy wait) {
    world w = group_of(2);
    return group_open(&w, messages, wait);
}

/* ---- timeouts ---- */

static unsigned slow_us, yields; /* how long a yield takes, beside many other threads */

int sched_yield(void) {
    yields++;
    if (slow_us) usleep(slow_us);
    return (int)syscall(SYS_sched_yield);
}

static void a_timeout_where_yields_are_slow(void) {
    for (int spins = 0; spins <= 5; spins += 5) {
        group *g = pair(false, (han_wait_policy){.spins = (uint32_t)spins, .timeout = 0.3});
        call c;
        waiting_call(&c);
        slow_us = 20000;
        yields = 0;
        int status = run(&g->engines[0], &c);
        slow_us = 0;
        require(status == HAN_E_TIMEOUT, "a rank that does not come is a timeout", status);
        require(yields <= 17, "the clock is read after each slow yield", (int)yields);
        han_engine_stop(&g->engines[0]);
        group_close(g);
    }
}

static void a_rank_that_never_calls(void) {
    group *g = pair(false, QUICK);
    call first, second;
    waiting_call(&first);
    waiting_call(&second);
    uint64_t begun = han_now_ns();
    int status = run(&g->engines[0], &first);
    double seconds = (double)(han_now_ns() - begun) * 1e-9;
    require(status == HAN_E_TIMEOUT, "a rank that does not come is a timeout", status);
    require(seconds > 0.29 && seconds < 10, "the timeout is kept", (int)seconds);
    status = run(&g->engines[0], &second);
    require(status == HAN_E_FAILED, "an engine that failed runs nothing more", status);
    han_engine_stop(&g->engines[0]);
    require(first.run.status == HAN_E_FAILED && second.run.status == HAN_E_FAILED,
            "stopping empties the queue", first.run.status);
    group_close(g);
}

static void progress_resets_the_timeout(void) {
    group *g = pair(false, QUICK);
    call c = {.code = {at_flag(HAN_WAIT, 1, 1), at_flag(HAN_WAIT, 1, 2)}};
    call_open(&c, 2, NULL, NULL);
    han_enqueue(&g->engines[0], &c.run);
    int status = han_progress(&g->engines[0], &c.run, false);
    require(status == HAN_BLOCKED, "without blocking, nothing moved", status);
    for (uint64_t k = 1; k <= 2; k++) {
        call post = {.code = {at_flag(HAN_POST, 1, k)}};
        call_open(&post, 1, NULL, NULL);
        g->engines[1].epoch = 0; /* both posts belong to one call of rank 0 */
        status = run(&g->engines[1], &post);
        require(status == HAN_OK, "a post waits for nothing", status);
    }
    status = han_progress(&g->engines[0], &c.run, true);
    require(status == HAN_OK && g->engines[0].epoch == 1, "what was waited for came", status);
    group_close(g);
}

/* ---- peers that died ---- */

static pid_t a_child_that_has_ended(bool reap) {
    pid_t child = fork();
    if (!child) _exit(0);
    if (reap) waitpid(child, NULL, 0);
    return child;
}

static int wait_for_peer(han_control record) {
    group *g = pair(false, PATIENT);
    han_control *peer = group_control(g, 1);
    peer->pid = record.pid;
    peer->pid_start = record.pid_start;
    peer->pid_namespace = record.pid_namespace;
    peer->rank = 17;
    if (record.pid_namespace) g->engines[0].wait.timeout = 0.3;
    call c;
    waiting_call(&c);
    int status = run(&g->engines[0], &c);
    if (status == HAN_E_DEAD)
        require(g->engines[0].dead_rank == 17, "the dead rank is named", g->engines[0].dead_rank);
    group_close(g);
    return status;
}

static void a_peer_that_died(void) {
    pid_t zombie = a_child_that_has_ended(false), gone = a_child_that_has_ended(true);
    uint64_t start = group_process_start();
    int status = wait_for_peer((han_control){.pid = zombie});
    require(status == HAN_E_DEAD, "a zombie is dead", status);
    status = wait_for_peer((han_control){.pid = gone, .pid_start = start});
    require(status == HAN_E_DEAD, "a process that is gone is dead", status);
    status = wait_for_peer((han_control){.pid = getpid(), .pid_start = start + 1});
    require(status == HAN_E_DEAD, "another process of the same number is not the peer", status);
    status = wait_for_peer((han_control){.pid = gone, .pid_start = start, .pid_namespace = 3});
    require(status == HAN_E_TIMEOUT, "numbers of another namespace say nothing", status);
    waitpid(zombie, NULL, 0);
}

static void a_peer_that_finished_may_exit(void) {
    group *g = pair(false, QUICK);
    group_control(g, 1)->pid = a_child_that_has_ended(true);
    atomic_store(&group_control(g, 1)->done, 1);
    call c;
    waiting_call(&c);
    int status = run(&g->engines[0], &c);
    require(status == HAN_E_TIMEOUT, "who has finished this call may have left", status);
    group_close(g);
}

static void a_peer_that_left(void) {
    for (int awake = 0; awake < 2; awake++) {
        group *g = pair(false, (han_wait_policy){.spins = 5, .timeout = 20, .futex = !awake});
        group_control(g, 1)->rank = 17;
        group_control(g, 1)->pid = a_child_that_has_ended(true);
        han_leave(&g->engines[1]);
        han_leave(&g->engines[1]);
        require(group_control(g, 0)->departures == 1, "a rank leaves once", awake);
        require(han_departed(&g->engines[0]) == HAN_BLOCKED, "nothing is under way", awake);
        call c;
        waiting_call(&c);
        int status = run(&g->engines[0], &c);
        require(status == HAN_E_GONE, "a peer left before the call", status);
        require(g->engines[0].dead_rank == 17, "it is named", g->engines[0].dead_rank);
        group_close(g);
    }
}

static void a_peer_that_finished_may_leave(void) {
    group *g = pair(false, QUICK);
    atomic_store(&group_control(g, 1)->done, 1);
    han_leave(&g->engines[1]);
    call c;
    waiting_call(&c);
    int status = run(&g->engines[0], &c);
    require(status == HAN_E_TIMEOUT, "who has finished this call may have left", status);
    group_close(g);
}

/* ---- interrupts, notices and errors of MPI ---- */

static bool yes(void *engine) {
    (void)engine;
    return true;
}

static void an_interrupt(void) {
    group *g = pair(false, PATIENT);
    g->engines[0].interrupted = yes;
    call c;
    waiting_call(&c);
    int status = run(&g->engines[0], &c);
    require(status == HAN_E_INTERRUPT, "an interrupt ends the wait", status);
    group_close(g);
}

static void a_notice_for_another_engine(void) {
    group *g = pair(true, PATIENT);
    call c, post = {.code = {at_flag(HAN_POST, 1, 1)}};
    waiting_call(&c);
    call_open(&post, 1, NULL, NULL);
    mailbox_notify(g->box, 0);
    int status = run(&g->engines[0], &c);
    require(status == HAN_E_NOTICE && !g->engines[0].failed, "a notice is told", status);
    mailbox_unnotify(g->box, 0);
    require(run(&g->engines[1], &post) == HAN_OK, "the peer goes on", 0);
    status = han_progress(&g->engines[0], &c.run, true);
    require(status == HAN_OK, "after a notice one may go on waiting", status);
    group_close(g);
}

static group *late; /* in which a peer acts just before a rank looks for notices */
static call late_post;

static int act_and_notify(int source, int tag, void *comm, int *flag, void *status) {
    (void)source, (void)tag, (void)comm;
    memset(status, 0xee, 64);
    if (late_post.run.status != HAN_OK) run(&late->engines[1], &late_post);
    *flag = 1;
    return 0;
}

static void a_notice_that_overtakes_a_flag(void) {
    late = pair(true, PATIENT);
    late->mpi.fn[HAN_F_MPI_Iprobe] = (han_anyfn)act_and_notify;
    late_post = (call){.code = {at_flag(HAN_POST, 1, 1)}};
    call_open(&late_post, 1, NULL, NULL);
    late_post.run.status = HAN_BLOCKED;
    call c;
    waiting_call(&c);
    int status = run(&late->engines[0], &c);
    require(status == HAN_OK, "what a peer did before its notice counts", status);
    waiting_call(&c);
    status = run(&late->engines[0], &c);
    require(status == HAN_E_NOTICE, "the next call hears the notice", status);
    group_close(late);
}

static void an_error_of_the_message_layer(void) {
    group *g = pair(true, PATIENT);
    char byte = 0;
    call c = {.code = {message(HAN_IRECV, 1, 1, 0), message(HAN_TEST, 0, 0, 0)}};
    call_open(&c, 2, &byte, &byte);
    mailbox_break(g->box, 0, 42);
    int status = run(&g->engines[0], &c);
    require(status == HAN_E_MPI && g->engines[0].mpi_error == 42, "its code is kept", status);
    group_close(g);
}

static void a_message_that_is_too_long(void) {
    group *g = pair(true, PATIENT);
    char from[64] = {0}, into[16];
    call send = {.code = {message(HAN_ISEND, 0, 64, 0), message(HAN_TEST, 0, 0, 0)}};
    call recv = {.code = {message(HAN_IRECV, 1, 16, 1), message(HAN_TEST, 0, 0, 1)}};
    call_open(&send, 2, from, NULL);
    call_open(&recv, 2, NULL, into);
    require(run(&g->engines[1], &send) == HAN_OK, "a small send is done at once", 0);
    int status = run(&g->engines[0], &recv);
    require(status == HAN_E_LONG, "truncation is an error of its own", status);
    group_close(g);
}

/* ---- parcels ---- */

enum { SLOT = 32, HEAD = 16, SLOTS = 3 };

/* An operation on all slots at `slots` of the receive buffer and the parcel at its beginning. */
static han_instr on_parcel(enum han_code code, uint64_t slots) {
    const bool packs = code == HAN_PACK;
    han_instr i = {.code = (uint16_t)code, .peer = 1, .n = SLOTS * SLOT, .slot = SLOT};
    i.base[0] = i.base[1] = i.base[2] = HAN_B_RECV;
    i.off[0] = packs ? HEAD : slots;
    i.off[1] = packs ? slots : HEAD;
    return i;
}

static void parcels_hold_what_is_used(void) {
    group *g = pair(false, PATIENT);
    uint64_t memory[64] = {0}, *length = &memory[1], *filled = &memory[20], *taken = &memory[40];
    filled[0] = 5, filled[1] = 55;                 /* a block of 5 bytes */
    filled[SLOT / 8] = SLOT, filled[SLOT / 4] = 0; /* a large one, and an empty one */
    call pack = {.code = {on_parcel(HAN_PACK, 160)}},
         unpack = {.code = {on_parcel(HAN_UNPACK, 320)}};
    call_open(&pack, 1, NULL, memory);
    call_open(&unpack, 1, NULL, memory);
    require(run(&g->engines[0], &pack) == HAN_OK && memory[0] == 1, "one small block", memory[0]);
    require(*length == 4 * 8, "three sizes and one block", *length);
    require(run(&g->engines[1], &unpack) == HAN_OK, "all of it is unpacked", 0);
    require(taken[1] == 55 && !memcmp(filled, taken, SLOTS * SLOT), "into the same slots",
            taken[1]);
    *length = 0;
    taken[1] = 7;
    require(run(&g->engines[1], &unpack) == HAN_OK && taken[1] == 7, "it was not sent", taken[1]);
    group_close(g);
}

/* A parcel that nobody expected in its call, or with a block that nobody expects. */
static void a_parcel_that_nobody_expects(void) {
    for (int later = 0; later < 2; later++) {
        group *g = pair(false, PATIENT);
        uint64_t memory[64] = {0}, *told = &memory[0], *filled = &memory[20];
        filled[0] = 5, filled[SLOT / 8] = 6;
        call pack = {.code = {on_parcel(HAN_PACK, 160)}},
             unpack = {.code = {on_parcel(HAN_UNPACK, 320)}};
        call_open(&pack, 1, NULL, memory);
        call_open(&unpack, 1, NULL, memory);
        require(run(&g->engines[0], &pack) == HAN_OK && *told == 2, "two blocks", *told);
        if (later)
            g->engines[1].epoch++;
        else
            *told = 1;
        int status = run(&g->engines[1], &unpack);
        require(status == HAN_E_LONG && g->engines[1].dead_rank == 1, "is an error", later);
        group_close(g);
    }
}

static void a_parcel_of_another_length(void) {
    for (uint64_t length = 1; length < 64; length++) {
        group *g = pair(false, PATIENT);
        uint64_t memory[64] = {0, length, 5, 55};
        call unpack = {.code = {on_parcel(HAN_UNPACK, 320)}};
        call_open(&unpack, 1, NULL, memory);
        int status = run(&g->engines[0], &unpack);
        int expected = length < 32 ? HAN_E_SHORT : length > 32 ? HAN_E_LONG : HAN_OK;
        require(status == expected, "its bytes are counted", length);
        require(status == HAN_OK || g->engines[0].dead_rank == 1, "its sender is named", length);
        group_close(g);
    }
}

/* ---- stopping ---- */

static void stopping_cancels_receives(void) {
    group *g = pair(true, QUICK);
    char into[64] = "untouched", late[64] = "late";
    call recv = {.code = {message(HAN_IRECV, 1, 32, 0), message(HAN_IRECV, 1, 32, 1),
                          message(HAN_TEST, 0, 0, 0), message(HAN_TEST, 0, 0, 1)}};
    call next, send = {.code = {message(HAN_ISEND, 0, 32, 0)}};
    call_open(&recv, 4, NULL, into);
    waiting_call(&next);
    call_open(&send, 1, late, NULL);
    han_enqueue(&g->engines[0], &recv.run);
    han_enqueue(&g->engines[0], &next.run);
    int status = han_progress(&g->engines[0], &recv.run, true);
    require(status == HAN_E_TIMEOUT, "nobody sends", status);
    require(mailbox_pending(g->box) == 2, "two receives are posted", (int)mailbox_pending(g->box));
    han_engine_stop(&g->engines[0]);
    require(mailbox_pending(g->box) == 0, "stopping withdraws them", (int)mailbox_pending(g->box));
    require(next.run.status == HAN_E_FAILED, "later calls fail too", next.run.status);
    require(run(&g->engines[1], &send) == HAN_OK, "the late message goes out", 0);
    require(!strcmp(into, "untouched"), "and reaches nobody's memory", 0);
    han_engine_stop(&g->engines[0]); /* a second stop has no effect */
    group_close(g);
}

static void stopping_completes_arrived_messages(void) {
    group *g = pair(true, QUICK);
    char into[64] = "untouched", data[64] = "on time";
    call recv = {.code = {message(HAN_IRECV, 1, 32, 0), at_flag(HAN_WAIT, 1, 1)}};
    call send = {.code = {message(HAN_ISEND, 0, 32, 0)}};
    call_open(&recv, 2, NULL, into);
    call_open(&send, 1, data, NULL);
    han_enqueue(&g->engines[0], &recv.run);
    (void)han_progress(&g->engines[0], &recv.run, false);
    require(run(&g->engines[1], &send) == HAN_OK, "the message goes out", 0);
    han_engine_stop(&g->engines[0]);
    require(!recv.requests[0], "its request is completed", 0);
    require(!strcmp(into, "on time"), "it has arrived", 0);
    group_close(g);
}

int main(void) {
    a_rank_that_never_calls();
    progress_resets_the_timeout();
    a_timeout_where_yields_are_slow();
    a_peer_that_died();
    a_peer_that_finished_may_exit();
    a_peer_that_left();
    a_peer_that_finished_may_leave();
    an_interrupt();
    a_notice_for_another_engine();
    a_notice_that_overtakes_a_flag();
    an_error_of_the_message_layer();
    a_message_that_is_too_long();
    parcels_hold_what_is_used();
    a_parcel_of_another_length();
    a_parcel_that_nobody_expects();
    stopping_cancels_receives();
    stopping_completes_arrived_messages();
    printf("timeouts, deaths, interrupts, notices, errors, parcels and stopping\n");
    return 0;
}
