#include "grid.h"

#include <string.h>

bool han_grid_repeat(han_grid *g, uint64_t count, int64_t stride) {
    han_loop *last = g->loops ? &g->loop[g->loops - 1] : NULL;
    if (!count || !g->run) {
        *g = han_grid_of(0);
    } else if (!last && stride >= 0 && (uint64_t)stride == g->run) {
        g->run *= count;
    } else if (last && stride == (int64_t)last->count * last->stride) {
        last->count *= count;
    } else if (count > 1) {
        if (g->loops == HAN_GRID_LOOPS) return false;
        g->loop[g->loops++] = (han_loop){count, stride};
    }
    return true;
}

typedef struct {
    int64_t low, high;
} bounds;

static bounds bounds_of(const han_grid *g, int64_t at) {
    bounds b = {at + g->first, at + g->first + (int64_t)g->run};
    for (int32_t k = 0; k < g->loops; k++) {
        const int64_t reach = (int64_t)(g->loop[k].count - 1) * g->loop[k].stride;
        *(reach < 0 ? &b.low : &b.high) += reach;
    }
    return b;
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

/* Copy the runs of the innermost loop. The compiler copies a run of a size that it knows in a few
 * instructions, so short runs have a case each. */
#define COPY(SIZE)                                                       \
    for (uint64_t k = 0; k < inner->count; k++, data += inner->stride) { \
        memcpy(packs ? packed : data, packs ? data : packed, (SIZE));    \
        packed += (SIZE);                                                \
    }                                                                    \
    return packed

static inline uint8_t *copy_runs(const han_loop *inner, uint64_t run, uint8_t *data,
                                 uint8_t *packed, const bool packs) {
    switch (run) {
    case 4:
        COPY(4);
    case 8:
        COPY(8);
    case 16:
        COPY(16);
    case 32:
        COPY(32);
    default:
        COPY(run);
    }
}

/* Copy what `loops` loops reach; return where the next packed bytes are. */
static uint8_t *copy(const han_grid *g, int loops, uint8_t *data, uint8_t *packed,
                     const bool packs) {
    if (loops == 1 && packs) return copy_runs(&g->loop[0], g->run, data, packed, true);
    if (loops == 1) return copy_runs(&g->loop[0], g->run, data, packed, false);
    const han_loop *outer = &g->loop[loops - 1];
    for (uint64_t k = 0; k < outer->count; k++, data += outer->stride)
        packed = copy(g, loops - 1, data, packed, packs);
    return packed;
}

static void copy_all(const han_grid *g, uint8_t *data, uint8_t *packed, bool packs) {
    const han_grid one = {.run = g->run, .loops = 1, .loop = {{1, 0}}};
    const han_grid *all = han_is_run(g) ? &one : g;
    copy(all, all->loops, data + g->first, packed, packs);
}

void han_grid_pack(const han_grid *g, const uint8_t *data, uint8_t *packed) {
    copy_all(g, (uint8_t *)data, packed, true);
}

void han_grid_unpack(const han_grid *g, const uint8_t *packed, uint8_t *data) {
    copy_all(g, data, (uint8_t *)packed, false);
}
