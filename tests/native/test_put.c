/* Large data into cells: the data is right whichever way it goes, and the way follows the costs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

#define MiB UINT64_C(1048576)

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    printf("FAILED: %s\n", what);
    exit(1);
}

/* How many of the next copies go that way. */
static int ways(han_engine *e, enum han_put way, int copies)
{
    int n = 0;
    for (int k = 0; k < copies; k++)
        n += han_put_way(e) == way;
    return n;
}

static void the_way_follows_the_costs(void)
{
    static han_engine e;
    require(han_put_way(&e) == HAN_PUT_ORDINARY, "the ordinary way is tried first");
    han_put_took(&e, HAN_PUT_ORDINARY, 50000, MiB);
    require(han_put_way(&e) == HAN_PUT_PAST, "then the other one");
    han_put_took(&e, HAN_PUT_PAST, 900000, MiB); /* pages touched first */
    require(!han_caches_far(&e), "memory takes longer");
    han_put_took(&e, HAN_PUT_PAST, 40000, MiB);
    require(e.put.cost[HAN_PUT_PAST] < 50000, "the first touch is forgotten at once");
    require(!han_caches_far(&e), "ordinary stores take somewhat longer");
    require(ways(&e, HAN_PUT_PAST, 10 * 61) == 10, "now and then memory is tried");
    for (int k = 0; k < 20; k++)
        han_put_took(&e, HAN_PUT_ORDINARY, 200000, MiB);
    require(han_caches_far(&e), "ordinary stores take much longer");
    require(ways(&e, HAN_PUT_ORDINARY, 10 * 31) == 10, "now and then they are tried");
    han_put_took(&e, HAN_PUT_ORDINARY, 30000, MiB);
    require(!han_caches_far(&e), "one that is quick shows that caches are near again");
}

static void somebody_elses_turn_counts_little(void)
{
    static han_engine e;
    han_put_took(&e, HAN_PUT_PAST, 40000, MiB);
    han_put_took(&e, HAN_PUT_ORDINARY, 60000000000, MiB); /* more than its number could hold */
    require(han_caches_far(&e), "a first copy that was stopped for long is slow");
    han_put_took(&e, HAN_PUT_ORDINARY, 50000, MiB);
    require(!han_caches_far(&e), "and the next one right");
    for (int k = 0; k < 3; k++)
        han_put_took(&e, HAN_PUT_ORDINARY, 60000000000, MiB);
    require(!han_caches_far(&e), "stopped three times, it is no slow one yet");
    for (int k = 0; k < 100; k++)
        han_put_took(&e, HAN_PUT_PAST, 0, MiB);
    for (int k = 0; k < 100; k++)
        han_put_took(&e, HAN_PUT_PAST, 40000, MiB);
    require(e.put.cost[HAN_PUT_PAST] > 20000, "times that no clock could tell are outgrown");
}

static void data_is_right(void)
{
    enum { BYTES = HAN_PUT_LEAST + 200, CALLS = 300 };
    static han_engine e;
    static unsigned char from[BYTES + 64], to[BYTES + 128];
    for (int k = 0; k < CALLS; k++) {
        size_t n = HAN_PUT_LEAST + (size_t)k % 200, at = (size_t)k % 64;
        e.put.cost[HAN_PUT_PAST] = 100; /* every other copy goes past the caches */
        e.put.cost[HAN_PUT_ORDINARY] = k % 2 ? 1000 : 100;
        for (size_t b = 0; b < n; b++)
            from[at / 2 + b] = (unsigned char)(b * 7 + (size_t)k);
        memset(to, 0xee, sizeof to);
        han_put(&e, to + at, from + at / 2, n);
        require(!memcmp(to + at, from + at / 2, n), "what was put is there");
        require(to[at + n] == 0xee && (!at || to[at - 1] == 0xee), "and nothing beside it");
    }
}

int main(void)
{
    the_way_follows_the_costs();
    somebody_elses_turn_counts_little();
    data_is_right();
    return 0;
}
