/* Spin locks that yield. */
#ifndef HAN_LOCK_H
#define HAN_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

static inline bool han_try_lock(atomic_flag *lock) {
    return !atomic_flag_test_and_set_explicit(lock, memory_order_acquire);
}

static inline void han_lock(atomic_flag *lock) {
    while (!han_try_lock(lock)) sched_yield();
}

static inline void han_unlock(atomic_flag *lock) {
    atomic_flag_clear_explicit(lock, memory_order_release);
}

#endif
