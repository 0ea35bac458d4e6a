/* Whether processes that are no ranks hold the processors that the ranks of a node may use.
 *
 * With more ranks than processors a rank that waits yields, to peers that have work. A stranger has
 * work all the time: each yield hands it a whole slice. Sleeping until a flag is posted costs more
 * than a yield to a peer, but the kernel prefers who wakes up to the stranger. That yields take long
 * does not tell the two apart, as peers compute too; the processors' time that all ranks have had
 * between two looks does: where strangers are, some is missing. */
#define _GNU_SOURCE
#include "crowd.h"

#include <time.h>

static const uint64_t SOON_NS = 10000000; /* too little time to judge by */
static const uint64_t LATE_NS = 200000000; /* ranks may have had other things to wait for meanwhile */

bool han_time_is_missing(uint64_t wall, uint64_t cpu, double processors) {
    double share = processors < 1 ? processors / 2 : 0.5;
    return (double)cpu < (processors - share) * (double)wall;
}

uint64_t han_cpu_time(int64_t pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid((pid_t)pid, &clock) || clock_gettime(clock, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Is this rank in one of the channels before? */
static bool counted(const han_engine *e, uint32_t channel, uint64_t rank) {
    for (uint32_t c = 0; c < channel; c++) {
        const han_channel *ch = &e->channels[c];
        const han_control *all = (const han_control *)(void *)(ch->memory + ch->control);
        for (uint32_t r = 0; r < ch->size; r++)
            if (all[r].rank == rank) return true;
    }
    return false;
}

/* The processors' time that this rank and its peers have had, 0 if that cannot be told. */
static uint64_t time_of_ranks(const han_engine *e) {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < e->n_channels; c++) {
        const han_channel *ch = &e->channels[c];
        const han_control *all = (const han_control *)(void *)(ch->memory + ch->control);
        for (uint32_t r = 0; r < ch->size; r++) {
            if (counted(e, c, all[r].rank)) continue;
            bool seen = all[r].pid_namespace == all[ch->me].pid_namespace;
            uint64_t time = seen ? han_cpu_time(all[r].pid) : 0;
            if (!time) return 0;
            sum += time;
        }
    }
    return sum;
}

bool han_strangers(han_engine *e, uint64_t now) {
    uint64_t passed = now - e->ranks_had.wall;
    if (e->ranks_had.cpu && passed < SOON_NS) return false;
    uint64_t cpu = time_of_ranks(e), before = e->ranks_had.cpu;
    e->ranks_had.wall = now;
    e->ranks_had.cpu = cpu;
    return cpu && before && passed < LATE_NS &&
           han_time_is_missing(passed, cpu - before, e->wait.processors);
}
