#include "data/operations.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "data/copies.h"
#include "data/cross_memory.h"
#include "data/operands.h"
#include "data/processor.h"
#include "data/stores.h"

#ifndef OUT_STEP
#define OUT_STEP 8192 /* bytes of a result that fit in the first-level cache and on the stack */
#endif
#define PACKED_STEP (1 << 20) /* bytes of packed elements that are combined at a time */
#ifndef OWN_LEAST
#define OWN_LEAST 32768 /* bytes; below, vectors are as fast for memory that no peer writes */
#endif

static inline void add_mapped(han_plan *p, const han_instr *i, int ref, uint64_t n) {
    if (i->base[ref] & HAN_B_PEER) han_add(&p->counts.mapped, n);
}

static inline void copy(han_plan *p, uint8_t *dst, const uint8_t *src, size_t n) {
    if (dst == src || !n) return;
    han_copy(dst, src, n);
    han_add(&p->counts.copied, n);
}

static inline bool is_own(uint32_t base) { return base < HAN_B_CHANNEL; }

/* Whether a base is in a channel, which peers read. */
static inline bool is_shared(uint32_t base) {
    return base >= HAN_B_CHANNEL && base < HAN_MAX_BASES;
}

/* The kind of copy depends on the rank that wrote the source and the one that reads the
 * destination. Stores past the caches: results that only the user reads, if they exceed the caches.
 * String instructions: data for peers, large data within this rank's own buffers, and data of peers
 * if it exceeds the second-level cache (docs/decisions/string-copies.md). */
void han_move(han_engine *e, han_plan *p, const han_instr *i) {
    uint8_t *dst = han_at(e, i, 0);
    const uint8_t *src = han_at(e, i, 1);
    if (dst == src || !i->n) return;
    if (p->streaming && i->base[0] == HAN_B_RECV)
        han_copy_streaming(dst, src, i->n);
    else if (i->n >= HAN_STRING_LEAST && is_shared(i->base[0]) && is_own(i->base[1]))
        han_copy_cells(e, dst, src, i->n);
    else if (i->n >= OWN_LEAST && (is_own(i->base[1]) || (p->much && !han_on_mesh())))
        han_copy_out(dst, src, i->n);
    else if (!is_own(i->base[1]))
        han_copy_in(dst, src, i->n);
    else
        han_copy(dst, src, i->n);
    han_add(&p->counts.copied, i->n);
    add_mapped(p, i, 1, i->n);
}

/* Make room for `n` bytes of operands. */
static bool operand_room(han_plan *p, size_t n) {
    if (n <= p->operand_size) return true;
    uint8_t *room = realloc(p->operand, n);
    if (!room) return false;
    p->operand = room;
    p->operand_size = n;
    return true;
}

/* dst = a op b of some packed elements: unpack both operands into this rank's layout, combine, pack. */
static int reduce_some_packed(const han_engine *e, han_plan *p, uint8_t *dst, const uint8_t *a,
                              const uint8_t *b, size_t n) {
    const han_mpi *m = e->mpi;
    int bytes = (int)(n * p->element), count = (int)n;
    han_type_facts t;
    int rc = han_type_facts_of(m, p->dtype, &t);
    if (rc) return rc;
    int64_t last = (int64_t)(n - 1) * t.extent, low = t.first + (last < 0 ? last : 0);
    low &= -HAN_LINE; /* element 0 is aligned */
    size_t span = (size_t)(t.behind + (last > 0 ? last : 0) - low + HAN_LINE) & -(size_t)HAN_LINE;
    if (!operand_room(p, 2 * span)) return m->err_no_mem;
    uint8_t *left = p->operand - low, *right = left + span; /* addresses of element 0 */
    rc = han_unpack(m, a, bytes, left, count, p->dtype, e->comm);
    if (!rc) rc = han_unpack(m, b, bytes, right, count, p->dtype, e->comm);
    if (!rc) rc = han_reduce_local(m, left, right, count, p->dtype, p->op);
    if (!rc) rc = han_pack(m, right, count, p->dtype, dst, bytes, e->comm);
    han_add(&p->counts.copied, 3 * (uint64_t)bytes);
    return rc;
}

/* Combine packed elements in steps, whose bytes MPI can count and whose room is small. */
static int reduce_packed(const han_engine *e, han_plan *p, uint8_t *dst, const uint8_t *a,
                         const uint8_t *b, size_t n) {
    int rc = 0;
    for (size_t step = PACKED_STEP / p->element + 1; n && !rc; n -= step) {
        if (step > n) step = n;
        size_t bytes = step * p->element;
        rc = reduce_some_packed(e, p, dst, a, b, step);
        dst += bytes, a += bytes, b += bytes;
    }
    return rc;
}

/* dst = a op b through MPI_Reduce_local, which computes inout = in op inout. The order of operands is
 * kept for operations that commute too: ranks that combine the same operands must get the same bits,
 * and MPI_MAXLOC of a NaN depends on the order. */
static int reduce_by_mpi(const han_engine *e, han_plan *p, uint8_t *dst, const uint8_t *a,
                         const uint8_t *b, size_t n) {
    size_t bytes = n * p->element;
    if (p->unpacks) return reduce_packed(e, p, dst, a, b, n);
    if (dst == a && dst != b) {
        memcpy(p->operand, b, bytes);
        int rc = han_reduce_local(e->mpi, a, p->operand, (int)n, p->dtype, p->op);
        memcpy(dst, p->operand, bytes);
        han_add(&p->counts.copied, 2 * bytes);
        return rc;
    }
    copy(p, dst, b, bytes);
    return han_reduce_local(e->mpi, a, dst, (int)n, p->dtype, p->op);
}

/* Reduce in steps that stay in the first-level cache, and store each to memory that peers read, `out`,
 * without fetching their lines: from `dst`, or from a stage if `dst` is NULL. Storing a stage does not
 * count as a copy, as it stays in the cache. Without fast string instructions `out` is stored past the
 * caches; the caller chooses this function then only while ordinary stores into cells are slow. Every
 * element with a kernel has at most 16 bytes, so a step holds some. */
static void reduce_out(const han_plan *p, uint8_t *dst, uint8_t *out, const uint8_t *a,
                       const uint8_t *b, size_t n) {
    _Alignas(HAN_LINE) uint8_t stage[OUT_STEP];
    void (*store)(void *, const void *, size_t) =
        han_copies_strings() ? han_copy_out : han_copy_streaming;
    for (size_t step = OUT_STEP / p->element; n; n -= step) {
        if (step > n) step = n;
        size_t bytes = step * p->element;
        p->reduce(dst ? dst : stage, a, b, step);
        store(out, dst ? dst : stage, bytes);
        if (dst) dst += bytes;
        out += bytes, a += bytes, b += bytes;
    }
}

static void reduce_part(const han_plan *p, uint8_t *dst, uint8_t *dst2, const uint8_t *a,
                        const uint8_t *b, size_t bytes) {
    if (dst2)
        p->reduce2(dst, dst2, a, b, bytes / p->element);
    else
        p->reduce(dst, a, b, bytes / p->element);
}

/* Reduce a part of each of three pages in turn, as han_copy_paged does with four: the same lines of
 * four pages of each of three operands would fill a first-level cache of twelve ways. The size of
 * every element with a kernel divides a part. */
static void reduce_paged(const han_plan *p, uint8_t *dst, uint8_t *dst2, const uint8_t *a,
                         const uint8_t *b, size_t bytes) {
    enum { PAGES = 3 * HAN_WALK_PAGE };
    size_t k = 0;
    for (; bytes - k >= PAGES; k += PAGES)
        for (size_t at = k; at < k + HAN_WALK_PAGE; at += HAN_WALK_STEP)
            for (size_t part = at; part < k + PAGES; part += HAN_WALK_PAGE)
                reduce_part(p, dst + part, dst2 ? dst2 + part : NULL, a + part, b + part,
                            HAN_WALK_STEP);
    reduce_part(p, dst + k, dst2 ? dst2 + k : NULL, a + k, b + k, bytes - k);
}

/* Only operands in cells: mapped arrays have the same offsets within pages, so that their lines
 * would compete for the same ways of the cache. */
static bool is_paged(const han_plan *p, const han_instr *i, uint64_t bytes) {
    bool far = is_shared(i->base[1]) || is_shared(i->base[2]);
    bool kernel = i->code == HAN_REDUCE2 ? p->reduce2 != NULL : p->reduce != NULL;
    return bytes >= HAN_WALK && far && kernel && han_on_mesh();
}

/* Reduce into cells, into a buffer that peers read, or into memory that no peer reads. If `dst` is
 * an operand, its lines are in this rank's cache: ordinary stores then. */
static void reduce_to(han_plan *p, const han_instr *i, uint8_t *dst, const uint8_t *a,
                      const uint8_t *b) {
    uint64_t bytes = i->n * p->element;
    bool strings = han_copies_strings() && dst != a && dst != b;
    if (strings && bytes >= HAN_STRING_LEAST && is_shared(i->base[0])) {
        reduce_out(p, NULL, dst, a, b, i->n);
    } else if (strings && bytes >= HAN_WAYS_LEAST && p->shows && i->base[0] == HAN_B_RECV) {
        enum han_way way = han_next_way(&p->shown);
        uint64_t before = han_now_ns();
        if (way == HAN_WAY_OTHER)
            reduce_out(p, NULL, dst, a, b, i->n);
        else
            p->reduce(dst, a, b, i->n);
        han_note_stores(&p->shown, way, han_now_ns() - before, bytes);
    } else {
        p->reduce(dst, a, b, i->n);
    }
}

int han_reduce(const han_engine *e, han_plan *p, const han_instr *i) {
    uint8_t *dst = han_at(e, i, 0);
    const uint8_t *a = han_at(e, i, 1), *b = han_at(e, i, 2);
    uint64_t bytes = i->n * p->element;
    if (!i->n) return 0;
    han_add(&p->counts.combined, bytes);
    add_mapped(p, i, 1, bytes);
    add_mapped(p, i, 2, bytes);
    if (is_paged(p, i, bytes)) {
        uint8_t *also = i->code == HAN_REDUCE2 ? han_at(e, i, 3) : NULL;
        reduce_paged(p, dst, also, a, b, bytes);
        if (also) han_add(&p->counts.copied, bytes);
        return 0;
    }
    if (i->code == HAN_REDUCE2 && p->reduce2) {
        if (is_shared(i->base[3]) && bytes >= HAN_STRING_LEAST &&
            (han_copies_strings() || han_usual_is_slow(&e->put)))
            reduce_out(p, dst, han_at(e, i, 3), a, b, i->n);
        else
            p->reduce2(dst, han_at(e, i, 3), a, b, i->n);
        han_add(&p->counts.copied, bytes);
        return 0;
    }
    int rc = 0;
    if (p->reduce)
        reduce_to(p, i, dst, a, b);
    else
        rc = reduce_by_mpi(e, p, dst, a, b, i->n);
    if (i->code == HAN_REDUCE2) copy(p, han_at(e, i, 3), dst, bytes);
    return rc;
}

enum han_status han_attach(han_engine *e, han_plan *p, const han_instr *i, int there) {
    if (!i->n) return HAN_OK;
    const han_control *peer = han_shown_by(e, HAN_ATTACH_CHANNEL(i), HAN_ATTACH_SLOT(i));
    uint64_t far = i->off[there] + atomic_load_explicit(&peer->shown[i->base[there] - HAN_B_SEND],
                                                        memory_order_relaxed);
    if (i->base[2]) {
        uint64_t behind;
        memcpy(&behind, e->bases[i->base[2]] + i->slot, sizeof behind);
        far += behind;
    }
    int problem = there ? han_pull(peer->pid, han_at(e, i, 0), far, i->n)
                        : han_push(peer->pid, far, han_at(e, i, 1), i->n);
    if (problem) {
        e->dead_rank = i->peer;
        return HAN_E_ATTACH;
    }
    han_add(&p->counts.attached, i->n);
    return HAN_OK;
}
