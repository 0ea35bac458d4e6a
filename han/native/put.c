/* Large data into cells, which a peer reads next: with ordinary stores, or past the caches.
 *
 * A store to a line that a peer has read first has to fetch it from the peer's cache. Where caches
 * are near each other (they share a last level) that costs little, and the peer then finds the data
 * in this rank's cache. Where they are far apart it costs several times what going to memory does;
 * on virtual machines the host moves processors, and near ones become far ones within a second. So
 * each engine goes by how long its copies take, and tries the other way now and then. A local
 * matter: nobody else sees which way the data came. */
#include "engine.h"

enum {
    TRY_WHILE_NEAR = 61, /* copies until the other way is tried once more; odd, as calls make */
    TRY_WHILE_FAR = 31,  /* even numbers of copies of several sizes */
    FAR = 2, /* so many times what memory costs: a peer's reads from there take longer, too */
    WEIGHT = 4,
    MOST = 1 << 28, /* nanoseconds for 1 MiB: more is no copy's time */
};

bool han_caches_far(const han_engine *e) {
    uint32_t ordinary = e->put.cost[HAN_PUT_ORDINARY], past = e->put.cost[HAN_PUT_PAST];
    return past && ordinary / FAR > past;
}

enum han_put han_put_way(han_engine *e) {
    if (!e->put.cost[HAN_PUT_ORDINARY]) return HAN_PUT_ORDINARY;
    if (!e->put.cost[HAN_PUT_PAST]) return HAN_PUT_PAST;
    bool far = han_caches_far(e);
    bool other = ++e->put.copies % (far ? TRY_WHILE_FAR : TRY_WHILE_NEAR) == 0;
    return far != other ? HAN_PUT_PAST : HAN_PUT_ORDINARY;
}

/* A much shorter time tells more than the mean, which a page's first touch or another process's
 * turn has made long; a much longer one may be such, and counts little. To memory it takes as long
 * as it takes: any shorter time is right. */
void han_put_took(han_engine *e, enum han_put way, uint64_t ns, uint64_t bytes) {
    uint64_t now = (ns << 20) / bytes + 1, mean = e->put.cost[way];
    if (now > MOST) now = MOST;
    if (!mean || now < (way == HAN_PUT_PAST ? mean : mean / 2)) mean = now;
    if (now > mean + mean / 2 + 1) now = mean + mean / 2 + 1;
    e->put.cost[way] = (uint32_t)((mean * (WEIGHT - 1) + now + WEIGHT - 1) / WEIGHT);
}

void han_put(han_engine *e, void *dst, const void *src, size_t n) {
    enum han_put way = han_put_way(e);
    uint64_t before = han_now_ns();
    if (way == HAN_PUT_PAST)
        han_copy_streaming(dst, src, n);
    else
        han_copy(dst, src, n);
    han_put_took(e, way, han_now_ns() - before, n);
}
