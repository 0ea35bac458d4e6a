/* Whether strangers hold processors: whose time is counted, and what is made of it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crowd.h"
#include "group.h"

#define MS UINT64_C(1000000)

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    printf("FAILED: %s\n", what);
    exit(1);
}

static void half_a_processor_is_missing(void)
{
    require(!han_time_is_missing(100 * MS, 200 * MS, 2), "none is missing");
    require(!han_time_is_missing(100 * MS, 150 * MS, 2), "not more than half is");
    require(han_time_is_missing(100 * MS, 149 * MS, 2), "more than half is");
    require(!han_time_is_missing(100 * MS, 20 * MS, 0.4), "not more than half of a quota is");
    require(han_time_is_missing(100 * MS, 19 * MS, 0.4), "more than half of a quota is");
}

static void time_of_processes(void)
{
    uint64_t before = han_cpu_time(getpid());
    require(before, "this process has had time");
    while (han_cpu_time(getpid()) == before)
        continue;
    pid_t child = fork();
    if (!child)
        _exit(0);
    require(waitpid(child, NULL, 0) == child, "the child is gone");
    require(!han_cpu_time(child), "its time cannot be told");
}

/* Looks at given times; with that many processors, time is always missing or never. */
static void looks(void)
{
    const double many = 1e6, none = 1e-6;
    world w = group_of(2);
    group *g = group_open(&w, false, (han_wait_policy){.processors = many});
    han_engine *e = &g->engines[0];
    uint64_t now = 1000 * MS;
    require(!han_strangers(e, now), "a first look tells nothing");
    require(!han_strangers(e, now += 5 * MS), "nor does one that comes soon");
    require(han_strangers(e, now += 50 * MS), "time is missing");
    require(!han_strangers(e, now += 300 * MS), "a look that comes late is a first one");
    e->wait.processors = none;
    require(!han_strangers(e, now += 50 * MS), "no time is missing");
    e->wait.processors = many;
    require(han_strangers(e, now += 50 * MS), "time is missing again");
    group_control(g, 1)->pid_namespace = 1;
    require(!han_strangers(e, now += 50 * MS), "the time of a peer out of sight cannot be told");
    group_close(g);
}

static void ranks_of_two_channels_count_once(void)
{
    world w = group_of(2);
    group *g = group_open(&w, false, (han_wait_policy){.processors = 1});
    han_engine *e = &g->engines[0];
    e->channels[1] = e->channels[0];
    e->n_channels = 2;
    uint64_t own = han_cpu_time(getpid()); /* of both ranks: they are threads of this process */
    (void)han_strangers(e, 1000 * MS);
    require(e->ranks_had.cpu >= 2 * own, "both ranks count");
    require(e->ranks_had.cpu <= 2 * han_cpu_time(getpid()), "and not twice");
    e->n_channels = 1;
    group_close(g);
}

int main(void)
{
    half_a_processor_is_missing();
    time_of_processes();
    looks();
    ranks_of_two_channels_count_once();
    return 0;
}
