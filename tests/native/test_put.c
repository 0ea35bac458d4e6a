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

static void the_way_follows_the_costs(void)
{
    static han_engine e;
    require(!han_caches_far(&e), "nothing is known");
    han_put_took(&e, HAN_PUT_ORDINARY, 50000, MiB);
    require(!han_caches_far(&e), "one way is not known");
    han_put_took(&e, HAN_PUT_PAST, 900000, MiB); /* pages touched first */
    require(!han_caches_far(&e), "memory takes longer");
    han_put_took(&e, HAN_PUT_PAST, 40000, MiB);
    require(e.put.cost[HAN_PUT_PAST] < 50000, "the first touch is forgotten at once");
    require(!han_caches_far(&e), "ordinary stores take somewhat longer");
    han_put_took(&e, HAN_PUT_ORDINARY, 50000 * 1000, MiB);
    require(e.put.cost[HAN_PUT_ORDINARY] < 100000, "somebody else's turn counts little");
    for (int k = 0; k < 8; k++)
        han_put_took(&e, HAN_PUT_ORDINARY, 200000, MiB);
    require(han_caches_far(&e), "ordinary stores take much longer");
    for (int k = 0; k < 8; k++)
        han_put_took(&e, HAN_PUT_ORDINARY, 30000, MiB);
    require(!han_caches_far(&e), "caches are near again");
}

static void data_is_right(void)
{
    enum { BYTES = HAN_PUT_LEAST + 200, CALLS = 300 };
    static han_engine e;
    static unsigned char from[BYTES + 64], to[BYTES + 128];
    for (int k = 0; k < CALLS; k++) {
        size_t n = HAN_PUT_LEAST + (size_t)k % 200, at = (size_t)k % 64;
        if (k == CALLS / 2) /* far, and it stays so for a while */
            e.put.cost[HAN_PUT_ORDINARY] = 100 * e.put.cost[HAN_PUT_PAST];
        for (size_t b = 0; b < n; b++)
            from[at / 2 + b] = (unsigned char)(b * 7 + (size_t)k);
        memset(to, 0xee, sizeof to);
        han_put(&e, to + at, from + at / 2, n);
        require(!memcmp(to + at, from + at / 2, n), "what was put is there");
        require(to[at + n] == 0xee && (!at || to[at - 1] == 0xee), "and nothing beside it");
    }
    require(e.put.cost[HAN_PUT_ORDINARY] && e.put.cost[HAN_PUT_PAST], "both ways were tried");
}

int main(void)
{
    the_way_follows_the_costs();
    data_is_right();
    return 0;
}
