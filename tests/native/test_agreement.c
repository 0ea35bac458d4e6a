/* Ranks that make different calls: a rank that waits for a flag or a message is told in that call,
 * also if the peer has gone on to later calls. */
#include <stdio.h>

#include "engine/queue.h"
#include "engine/stepping.h"
#include "group.h"

static const han_wait_policy PATIENT = {.timeout = 20};

enum { OURS = 17, OTHER = 18, AHEAD = HAN_CALLS_KEPT - 1 };

typedef struct {
    han_instr code[2];
    uint64_t requests[1];
    han_plan plan;
    han_run run;
} call;

static void call_open(call *c, uint32_t n, uint64_t signature) {
    c->plan = (han_plan){.code = c->code,
                         .n_streams = 1,
                         .streams = {{0, n}},
                         .n_requests = 1,
                         .requests = c->requests,
                         .element = 8,
                         .brief = true,
                         .signature = signature};
    c->run.plan = &c->plan;
}

static int make(han_engine *e, call *c, uint32_t n, uint64_t signature) {
    call_open(c, n, signature);
    han_enqueue(e, &c->run);
    int status = han_progress(e, &c->run, true);
    if (status > HAN_BLOCKED) han_engine_stop(e); /* it must not keep the call */
    return status;
}

static int posts(group *g, uint64_t signature) {
    call c = {.code = {at_flag(HAN_POST, 1, 1)}};
    return make(&g->engines[1], &c, 1, signature);
}

static int waits(group *g, uint64_t signature) {
    call c = {.code = {at_flag(HAN_WAIT, 1, 1)}};
    return make(&g->engines[0], &c, 1, signature);
}

static group *pair(bool messages) {
    world w = group_of(2);
    return group_open(&w, messages, PATIENT);
}

static void told(const group *g, int status, enum han_status wanted) {
    require(status == (int)wanted, "the difference is told in the call", status);
    require(g->engines[0].dead_rank == 1, "and the peer is named", g->engines[0].dead_rank);
}

static void in_the_call(void) {
    group *g = pair(false);
    for (int k = 0; k < 50; k++)
        require(posts(g, OURS) == HAN_OK && waits(g, OURS) == HAN_OK, "same calls pass", k);
    require(posts(g, OTHER) == HAN_OK, "a rank that waits for none goes on", 0);
    told(g, waits(g, OURS), HAN_E_MISMATCH);
    group_close(g);
}

static void of_a_peer_that_is_ahead(void) {
    group *g = pair(false);
    for (int k = 0; k <= AHEAD; k++) (void)posts(g, k == AHEAD / 2 ? OTHER : OURS);
    for (int k = 0; k < AHEAD / 2; k++)
        require(waits(g, OURS) == HAN_OK, "earlier calls were the same", k);
    told(g, waits(g, OURS), HAN_E_MISMATCH);
    group_close(g);
}

/* Ahead by all banks of small slots, a rank waits for more than one only as long as peers may be quick. */
static void ahead_of_a_slow_peer_one_bank_is_enough(void) {
    group *g = pair(false);
    han_engine *e = &g->engines[1];
    enum han_status status = HAN_BLOCKED;
    int rounds = 0;
    for (uint64_t k = 0; k < e->channels[0].banks; k++) (void)posts(g, OURS);
    call c = {.code = {at_flag(HAN_POST, 1, 1)}, .run = {.blocking = true}};
    call_open(&c, 1, OURS);
    c.plan.writes[0] = HAN_W_SMALL;
    han_enqueue(e, &c.run);
    require(han_engine_step(e) == HAN_BLOCKED, "no bank is free", 0);
    require(waits(g, OURS) == HAN_OK, "the peer ends a run", 0);
    while (status == HAN_BLOCKED && rounds++ < 100) status = han_engine_step(e);
    require(status == HAN_MOVED && rounds > 15, "one free bank is enough later", rounds);
    group_close(g);
}

static void unknown_of_a_peer_that_is_far_ahead(void) {
    group *g = pair(false);
    for (int k = 0; k <= 1 << 16; k++) /* the counts in digests repeat */
        (void)posts(g, k ? OURS : OTHER);
    require(waits(g, OURS) == HAN_OK, "its digest of this call is gone", 0);
    group_close(g);
}

static void but_not_of_a_rank_that_raised(void) {
    group *g = pair(false);
    require(posts(g, OURS) == HAN_OK && waits(g, OURS) == HAN_OK, "same calls pass", 0);
    group_control(g, 1)->erred = 2; /* the second call: its notice says why */
    call empty = {.code = {at_flag(HAN_POST, 1, 1)}};
    require(make(&g->engines[1], &empty, 0, OTHER) == HAN_OK, "it runs an empty plan", 0);
    require(posts(g, OURS) == HAN_OK, "and goes on", 0);
    int status = waits(g, OURS);
    require(status == HAN_E_NOTICE || status == HAN_OK, "that is no difference", status);
    group_close(g);
}

static void of_the_rank_that_writes_anothers_flag(void) {
    group *g = pair(false);
    call post = {.code = {at_flag(HAN_POST, 0, 1)}}, wait = {.code = {at_flag(HAN_WAIT, 0, 1)}};
    wait.code[0].peer = 1;
    require(make(&g->engines[1], &post, 1, OTHER) == HAN_OK, "a parent posts a child's flag", 0);
    told(g, make(&g->engines[0], &wait, 1, OURS), HAN_E_MISMATCH);
    group_close(g);
}

static han_instr message(enum han_code code, int peer, uint64_t n) {
    han_instr i = {.code = (uint16_t)code, .peer = peer, .n = n};
    if (code == HAN_TEST) return i;
    i.base[0] = HAN_B_RECV;
    i.base[1] = HAN_B_SEND;
    return i;
}

static void of_messages(int sent, int expected, enum han_status wanted) {
    group *g = pair(true);
    char from[64] = {0}, into[64];
    call send = {.code = {message(HAN_ISEND, 0, sent), message(HAN_TEST, 0, 0)}};
    call recv = {.code = {message(HAN_IRECV, 1, expected), message(HAN_TEST, 1, expected)}};
    send.run.send = from;
    recv.run.recv = into;
    require(make(&g->engines[1], &send, 2, OURS) == HAN_OK, "a small send is done at once", 0);
    int status = make(&g->engines[0], &recv, 2, OURS);
    require(status == (int)wanted, "a message of another size is told", status);
    if (wanted != HAN_OK) told(g, status, wanted);
    group_close(g);
}

int main(void) {
    in_the_call();
    of_a_peer_that_is_ahead();
    ahead_of_a_slow_peer_one_bank_is_enough();
    unknown_of_a_peer_that_is_far_ahead();
    but_not_of_a_rank_that_raised();
    of_the_rank_that_writes_anothers_flag();
    of_messages(64, 64, HAN_OK);
    of_messages(32, 64, HAN_E_SHORT);
    of_messages(0, 64, HAN_E_SHORT);
    of_messages(64, 32, HAN_E_LONG);
    printf("ranks that make different calls are told\n");
    return 0;
}
