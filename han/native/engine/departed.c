#define _GNU_SOURCE
#include "engine/stepping.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bell.h"

void han_leave(han_engine *e) {
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        han_control *all = han_records(ch);
        if (atomic_exchange_explicit(&all[ch->me].gone, 1, memory_order_release)) continue;
        atomic_fetch_add_explicit(&all[0].departures, 1, memory_order_release);
        if (e->bells >> c & 1) han_ring(ch);
    }
}

/* A peer that is gone and has not finished more than `epoch` runs, or -1. */
static int lost(const han_channel *ch, uint64_t epoch) {
    const han_control *all = han_records(ch);
    if (!atomic_load_explicit(&all[0].departures, memory_order_acquire)) return -1;
    for (uint32_t r = 0; r < ch->size; r++) {
        if (r == ch->me || !atomic_load_explicit(&all[r].gone, memory_order_acquire)) continue;
        if (atomic_load_explicit(&all[r].done, memory_order_acquire) <= epoch)
            return (int)all[r].rank;
    }
    return -1;
}

enum han_status han_departed(han_engine *e) {
    uint64_t epoch = atomic_load_explicit(&e->finished, memory_order_relaxed);
    uint64_t issued = atomic_load_explicit(&e->issued, memory_order_relaxed);
    if (epoch >= issued) return HAN_BLOCKED; /* another thread has just finished the run */
    for (uint32_t c = 0; c < e->n_channels; c++) {
        int rank = lost(&e->channels[c], epoch);
        if (rank < 0) continue;
        e->dead_rank = rank;
        return HAN_E_GONE;
    }
    return HAN_BLOCKED;
}

/* Whether a process has ended. It may still be a zombie that its parent has not reaped. */
static bool process_gone(int64_t pid, uint64_t start) {
    if (kill((pid_t)pid, 0) && errno == ESRCH) return true;
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *p = strrchr(text, ')'); /* the name before it may contain any character */
    if (!p || p[1] != ' ') return false;
    char state = p[2];
    p += 2;
    for (int field = 3; field < 22 && p; field++) {
        p = strchr(p, ' ');
        if (p) p++;
    }
    bool other = p && isdigit((unsigned char)*p) && strtoull(p, NULL, 10) != start;
    return state == 'Z' || state == 'X' || other;
}

bool han_dead_peer(han_engine *e) {
    uint64_t epoch = atomic_load_explicit(&e->finished, memory_order_relaxed);
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        const han_control *all = han_records(ch);
        for (uint32_t r = 0; r < ch->size; r++) {
            const han_control *p = &all[r];
            if (r == ch->me || p->pid_namespace != all[ch->me].pid_namespace) continue;
            if (atomic_load_explicit(&p->done, memory_order_relaxed) > epoch) continue;
            if (atomic_load_explicit(&p->gone, memory_order_relaxed)) continue; /* it said so */
            if (!process_gone(p->pid, p->pid_start)) continue;
            e->dead_rank = (int)p->rank;
            return true;
        }
    }
    return false;
}
