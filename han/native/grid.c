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
