#include "python/py_token_list.h"

#include <sched.h>

#include "engine/helper.h"
#include "engine/lock.h"
#include "python/py_run.h"

struct han_shown han_shown = {.lock = ATOMIC_FLAG_INIT,
                              .list = {.next = &han_shown.list, .previous = &han_shown.list}};

static void put_first(han_token *t) {
    t->next = han_shown.list.next;
    t->previous = &han_shown.list;
    t->next->previous = t->previous->next = t;
}

static han_token **chain_of(uint64_t handle) {
    return &han_shown.chains[handle * 0x9e3779b97f4a7c15u >> 56];
}

void han_token_show(han_token *t) {
    han_token **chain = chain_of(t->handle);
    han_lock(&han_shown.lock);
    put_first(t);
    t->beside = *chain;
    *chain = t;
    t->shown = true;
    atomic_fetch_add_explicit(&han_shown.n, 1, memory_order_relaxed);
    han_unlock(&han_shown.lock);
}

/* Who has pinned a token may need Python. */
static void wait_for_pins(const han_token *t) {
    while (atomic_load(&t->pins)) {
        PyThreadState *caller = han_py_without_lock();
        sched_yield();
        if (caller) PyEval_RestoreThread(caller);
    }
}

/* Remove a token, under the lock. */
static void take_out(han_token *t) {
    han_token **at = chain_of(t->handle);
    while (*at != t) at = &(*at)->beside;
    *at = t->beside;
    t->next->previous = t->previous;
    t->previous->next = t->next;
    t->shown = false;
    atomic_fetch_sub_explicit(&han_shown.n, 1, memory_order_relaxed);
}

void han_token_hide(han_token *t) {
    if (!t->shown) return;
    han_lock(&han_shown.lock);
    take_out(t);
    han_unlock(&han_shown.lock);
    wait_for_pins(t);
}

void han_token_set_state(han_token *t, enum han_token_state state) {
    const int before = atomic_exchange_explicit(&t->state, state, memory_order_acq_rel);
    if ((before == ARMED) != (state == ARMED)) han_helper_count(state == ARMED ? 1 : -1);
}

bool han_token_rest(han_token *t, bool hidden) {
    han_lock(&han_shown.lock);
    const bool rests = t->state == ARMED;
    if (rests) han_token_set_state(t, RESTING);
    if (rests && hidden) take_out(t);
    han_unlock(&han_shown.lock);
    if (rests && hidden) wait_for_pins(t);
    return rests;
}

PyObject *han_token_owner(uint64_t handle) {
    PyObject *owner = NULL;
    if (!atomic_load_explicit(&han_shown.n, memory_order_relaxed)) return NULL;
    han_lock(&han_shown.lock);
    for (han_token *t = *chain_of(handle); t && !owner; t = t->beside)
        if (t->handle == handle && han_token_armed(t)) owner = t->owner;
    han_unlock(&han_shown.lock);
    return owner;
}

han_token *han_token_next_armed(void) {
    han_token *one = NULL;
    han_lock(&han_shown.lock);
    for (han_token *t = han_shown.list.previous; t != &han_shown.list && !one; t = t->previous)
        if (han_token_armed(t)) one = t;
    if (one) {
        one->pins++;
        one->next->previous = one->previous;
        one->previous->next = one->next;
        put_first(one);
    }
    han_unlock(&han_shown.lock);
    return one;
}

bool han_tokens_in_use(void) { return atomic_load(&han_shown.n); }
