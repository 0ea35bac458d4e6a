/* Large data to where a peer reads it next: with ordinary stores, or otherwise.
 *
 * A store to a line that a peer has read may have to fetch it from the peer's cache. Where caches
 * are near each other (they share a last level) that costs little, and the peer then finds the data
 * in this rank's cache. Where they are far apart it costs several times what the other way does; on
 * virtual machines the host moves processors, and near ones become far ones within a second. So
 * engines and plans go by how long either way takes, and try the one that they do not use now and
 * then. A local matter: nobody else sees which way the data came.
 *
 * Into cells strings are the best way, near and far, where the processor has quick ones
 * (kernels_copy.c); else the other way is past the caches. Where lines are slow from core to core
 * anyway, large data goes page by page in turns, and nothing is timed. Results that peers read where
 * they are go out as strings from the first cache (data.c). */
#include "engine.h"

enum {
    TRY_WHILE_NEAR = 61, /* times until the other way is tried once more; odd, as calls make */
    TRY_WHILE_FAR = 31,  /* even numbers of copies of several sizes */
    SLOW = 2, /* so many times what the other way costs: a peer's reads take longer then, too */
    WEIGHT = 4,
    MOST = 1 << 28, /* nanoseconds for 1 MiB: more is no copy's time */
};

bool han_usual_is_slow(const han_ways *w) {
    uint32_t usual = w->cost[HAN_WAY_USUAL], other = w->cost[HAN_WAY_OTHER];
    return other && usual / SLOW > other;
}

enum han_way han_next_way(han_ways *w) {
    if (!w->cost[HAN_WAY_USUAL]) return HAN_WAY_USUAL;
    if (!w->cost[HAN_WAY_OTHER]) return HAN_WAY_OTHER;
    bool slow = han_usual_is_slow(w);
    bool try = ++w->times % (slow ? TRY_WHILE_FAR : TRY_WHILE_NEAR) == 0;
    return slow != try ? HAN_WAY_OTHER : HAN_WAY_USUAL;
}

/* A much shorter time tells more than the mean, which a page's first touch or another process's
 * turn has made long; a much longer one may be such, and counts little. The other way takes as long
 * as it takes: any shorter time is right. */
void han_took(han_ways *w, enum han_way way, uint64_t ns, uint64_t bytes) {
    uint64_t now = (ns << 20) / bytes + 1, mean = w->cost[way];
    if (now > MOST) now = MOST;
    if (!mean || now < (way == HAN_WAY_OTHER ? mean : mean / 2)) mean = now;
    if (now > mean + mean / 2 + 1) now = mean + mean / 2 + 1;
    w->cost[way] = (uint32_t)((mean * (WEIGHT - 1) + now + WEIGHT - 1) / WEIGHT);
}

void han_put(han_engine *e, void *dst, const void *src, size_t n) {
    if (n >= HAN_WALK_LEAST && han_on_mesh()) {
        han_copy_paged(dst, src, n);
        return;
    }
    if (n < HAN_WAYS_LEAST || han_copies_strings()) {
        han_copy_out(dst, src, n);
        return;
    }
    enum han_way way = han_next_way(&e->put);
    uint64_t before = han_now_ns();
    if (way == HAN_WAY_OTHER)
        han_copy_streaming(dst, src, n);
    else
        han_copy(dst, src, n);
    han_took(&e->put, way, han_now_ns() - before, n);
}
