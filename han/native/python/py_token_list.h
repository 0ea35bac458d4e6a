/* The tokens of requests: what one consists of, those that MPI may ask for in a list, and the same by
 * MPI's handles. Nothing here needs the lock of the interpreter. */
#ifndef HAN_PY_TOKEN_LIST_H
#define HAN_PY_TOKEN_LIST_H

#include <stdatomic.h>

#include "python/objects.h"

typedef struct han_token han_token;

enum han_token_state {
    RESTING,  /* no run is under way */
    ARMED,    /* a run is under way, or has finished and nobody has asked yet */
    COMPLETE, /* MPI knows that it is complete */
    GONE,     /* MPI has freed the request */
};

struct han_token {
    uint64_t handle;
    PyObject *owner; /* borrowed; NULL: in the pool, or dropped */
    EngineObject *engine;
    han_run *run;
    _Atomic int state;
    bool ours;                  /* han itself completes the request: the owner knows */
    _Atomic int pins;           /* threads that advance it without being asked by MPI */
    uint32_t fruitless;         /* polls by MPI in a row */
    uint64_t since, slow;       /* for checks while MPI waits: the first one, the next one */
    han_token *next, *previous; /* in the list; `next` also in the pool */
    han_token *beside;          /* the next one of its chain */
    bool shown;                 /* it is in the list and in a chain */
};

enum { HAN_TOKEN_CHAINS = 256 };

extern struct han_shown {
    atomic_flag lock; /* for the list, the chains, and for changes of states */
    han_token list;   /* its ends */
    han_token *chains[HAN_TOKEN_CHAINS];
    _Atomic int n; /* in the list */
} han_shown;

static inline bool han_token_armed(const han_token *t) {
    return atomic_load_explicit(&t->state, memory_order_acquire) == ARMED;
}

/* With the lock of the list, where another thread may do the same. */
void han_token_set_state(han_token *, enum han_token_state);
/* The run is over. False if MPI knows: it completes the request. Otherwise MPI need not know; if `hidden`,
 * the token is removed. */
bool han_token_rest(han_token *, bool hidden);
/* Enter a token. */
void han_token_show(han_token *);
/* Remove a token, if it is entered. No other thread uses it afterwards. */
void han_token_hide(han_token *);
/* The request with a handle, borrowed, whose run is under way, or has finished and nobody has asked yet;
 * NULL if there is none. */
PyObject *han_token_owner(uint64_t handle);
/* Whether MPI may ask for any request. */
bool han_tokens_in_use(void);
/* The armed token that was checked longest ago, with a pin; NULL if there is none. */
han_token *han_token_next_armed(void);

#endif
