#include "grid.h"

#include <string.h>

bool han_grid_repeat(han_grid *g, uint64_t count, int64_t stride) {
    han_loop *last = g->loops ? &g->loop[g->loops - 1] : NULL;
    if (!count || !g->run) {
        *g = han_grid_of(0);
    } else if (han_is_run(g) && stride >= 0 && (uint64_t)stride == g->run) {
        g->run *= count;
    } else if (last && stride == (int64_t)last->count * last->stride) {
        last->count *= count;
    } else if (count > 1) {
        if (g->loops == HAN_GRID_LOOPS) return false;
        g->loop[g->loops++] = (han_loop){count, stride};
    }
    return true;
}

bool han_grid_append(han_grid *g, int64_t at, uint64_t n) {
    const int64_t from = at - g->first;
    if (!n) return true;
    if (!g->run) {
        *g = han_grid_of(n);
        g->first = at;
        return true;
    }
    if (!g->pieces && from == (int64_t)g->run) {
        g->run += n;
        return true;
    }
    if (from < INT32_MIN || from > INT32_MAX || g->run + n > INT32_MAX) return false;
    if (!g->pieces) g->piece[g->pieces++] = (han_piece){0, (uint32_t)g->run};
    han_piece *last = &g->piece[g->pieces - 1];
    if (from == (int64_t)last->at + last->n)
        last->n += (uint32_t)n;
    else if (g->pieces == HAN_GRID_PIECES)
        return false;
    else
        g->piece[g->pieces++] = (han_piece){(int32_t)from, (uint32_t)n};
    g->run += n;
    return true;
}

typedef struct {
    int64_t low, high;
} bounds;

static bounds bounds_of(const han_grid *g, int64_t at) {
    const int64_t first = at + g->first;
    bounds b = {first, first + (g->pieces ? 0 : (int64_t)g->run)};
    for (int32_t k = 0; k < g->pieces; k++) {
        const int64_t low = first + g->piece[k].at, high = low + g->piece[k].n;
        if (low < b.low) b.low = low;
        if (high > b.high) b.high = high;
    }
    for (int32_t k = 0; k < g->loops; k++) {
        const int64_t reach = (int64_t)(g->loop[k].count - 1) * g->loop[k].stride;
        *(reach < 0 ? &b.low : &b.high) += reach;
    }
    return b;
}

void han_grid_bounds(const han_grid *g, int64_t *low, int64_t *high) {
    const bounds b = bounds_of(g, 0);
    *low = b.low;
    *high = b.high;
}

/* The least stride of a grid, or `least` if that is less. */
static int64_t least_stride(const han_grid *g, int64_t least) {
    for (int32_t k = 0; k < g->loops; k++) {
        const int64_t stride = g->loop[k].stride < 0 ? -g->loop[k].stride : g->loop[k].stride;
        if (stride < least) least = stride;
    }
    return least;
}

static bool has_period(const han_grid *g, int64_t period) {
    if (g->pieces) return false;
    for (int32_t k = 0; k < g->loops; k++)
        if (g->loop[k].stride % period) return false;
    return (int64_t)g->run <= period;
}

bool han_grids_apart(const han_grid *a, const uint8_t *at, const han_grid *b,
                     const uint8_t *other) {
    if (a->loops < 0 || b->loops < 0) return false;
    const int64_t from = (int64_t)(intptr_t)at, to = (int64_t)(intptr_t)other;
    const bounds x = bounds_of(a, from), y = bounds_of(b, to);
    if (x.high <= y.low || y.high <= x.low) return true;
    const int64_t period = least_stride(a, least_stride(b, INT64_MAX));
    if (!period || period == INT64_MAX || !has_period(a, period) || !has_period(b, period))
        return false;
    int64_t place = (to + b->first - from - a->first) % period;
    if (place < 0) place += period;
    return place >= (int64_t)a->run && place + (int64_t)b->run <= period;
}

/* Copy `n` bytes of each run of a loop; packed ones are `step` bytes apart. The compiler copies bytes whose
 * number it knows in a few instructions, so short runs have a case each. */
#define COPY(SIZE)                                                                   \
    for (uint64_t k = 0; k < inner.count; k++, data += inner.stride, packed += step) \
        memcpy(packs ? packed : data, packs ? data : packed, (SIZE));                \
    return

static inline void copy_each(han_loop inner, uint64_t n, uint64_t step, uint8_t *data,
                             uint8_t *packed, const bool packs) {
    switch (n) {
    case 1:
        COPY(1);
    case 2:
        COPY(2);
    case 4:
        COPY(4);
    case 8:
        COPY(8);
    case 16:
        COPY(16);
    case 24:
        COPY(24);
    case 32:
        COPY(32);
    default:
        COPY(n);
    }
}

/* Copy the runs of the innermost loop; those in pieces some at a time, which stay in the cache meanwhile. */
static inline uint8_t *copy_runs(const han_grid *g, uint8_t *data, uint8_t *packed,
                                 const bool packs) {
    enum { SOME = 256 };
    const han_loop *inner = &g->loop[0];
    const uint64_t count = inner->count, run = g->run;
    if (!g->pieces) copy_each(*inner, run, run, data, packed, packs);
    for (uint64_t done = 0; g->pieces && done < count; done += SOME) {
        const han_loop some = {count - done < SOME ? count - done : SOME, inner->stride};
        uint8_t *from = data + (int64_t)done * inner->stride, *to = packed + done * run;
        for (int32_t k = 0; k < g->pieces; to += g->piece[k++].n)
            copy_each(some, g->piece[k].n, run, from + g->piece[k].at, to, packs);
    }
    return packed + count * run;
}

/* Copy what `loops` loops reach; return where the next packed bytes are. */
static uint8_t *copy(const han_grid *g, int loops, uint8_t *data, uint8_t *packed,
                     const bool packs) {
    if (loops == 1 && packs) return copy_runs(g, data, packed, true);
    if (loops == 1) return copy_runs(g, data, packed, false);
    const han_loop *outer = &g->loop[loops - 1];
    for (uint64_t k = 0; k < outer->count; k++, data += outer->stride)
        packed = copy(g, loops - 1, data, packed, packs);
    return packed;
}

static void copy_all(const han_grid *g, uint8_t *data, uint8_t *packed, bool packs) {
    han_grid one;
    if (!g->loops) {
        one = *g;
        one.loops = 1;
        one.loop[0] = (han_loop){1, 0};
        g = &one;
    }
    copy(g, g->loops, data + g->first, packed, packs);
}

void han_grid_pack(const han_grid *g, const uint8_t *data, uint8_t *packed) {
    copy_all(g, (uint8_t *)data, packed, true);
}

void han_grid_unpack(const han_grid *g, const uint8_t *packed, uint8_t *data) {
    copy_all(g, data, (uint8_t *)packed, false);
}
