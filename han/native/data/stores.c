/* A store to a line that a peer has read may fetch it from the peer's cache. If the two ranks share
 * a last-level cache, that costs little, and the peer then finds the data in this rank's cache. If
 * their caches are far apart, it costs several times what the other kind of store costs. On a
 * virtual machine the host moves virtual processors, so this changes while a program runs. Engines
 * and plans therefore measure both kinds, and now and then try the one that they do not use. Each
 * rank decides alone: the data is the same either way.
 *
 * The usual kind is an ordinary store. The other kind for cells is a store past the caches, and for
 * results in a rank's own buffer a string instruction (data/operations.c). Cells need no
 * measurement where string instructions are fast, which are then the best kind, or where cores sit
 * on a mesh, where large data is copied in pages by turns. */
#include "data/stores.h"

#include "clock.h"
#include "data/copies.h"
#include "data/processor.h"

enum {
    /* Copies from one try of the kind not in use to the next. Odd numbers: a call makes an even
     * number of copies, so that tries meet all of its sizes. */
    TRY_WHILE_NEAR = 61,
    TRY_WHILE_FAR = 31,
    SLOW = 2,       /* the usual kind is slow if it costs so many times what the other one costs */
    WEIGHT = 4,     /* a new time counts for a fourth of the mean */
    MOST = 1 << 28, /* nanoseconds for 1 MiB: longer times are cut to this */
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

/* Page faults and other processes make some times too long, never too short. A much shorter time
 * therefore replaces the mean, and a much longer time counts little. The cost of the other kind
 * does not depend on distance: every shorter time replaces its mean. */
void han_note_stores(han_ways *w, enum han_way way, uint64_t ns, uint64_t bytes) {
    uint64_t now = (ns << 20) / bytes + 1, mean = w->cost[way];
    if (now > MOST) now = MOST;
    if (!mean || now < (way == HAN_WAY_OTHER ? mean : mean / 2)) mean = now;
    if (now > mean + mean / 2 + 1) now = mean + mean / 2 + 1;
    w->cost[way] = (uint32_t)((mean * (WEIGHT - 1) + now + WEIGHT - 1) / WEIGHT);
}

void han_copy_cells(han_engine *e, void *dst, const void *src, size_t n) {
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
    han_note_stores(&e->put, way, han_now_ns() - before, n);
}
