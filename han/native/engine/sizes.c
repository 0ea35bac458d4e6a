#include "engine/sizes.h"

enum { RATE_BITS = 32 }; /* of the fraction of a rate, as in han/model/program.py */

typedef struct {
    uint64_t rate; /* grains of this message for one of the largest */
    uint64_t grain, nbytes;
} scale;

static inline uint64_t position(const scale *s, uint32_t number) {
    uint64_t up = (UINT64_C(1) << RATE_BITS) - 1;
    uint64_t at = ((number * s->rate + up) >> RATE_BITS) * s->grain;
    return at < s->nbytes ? at : s->nbytes;
}

void han_fit(han_plan *p, uint64_t nbytes) {
    uint64_t grains = (nbytes + p->grain - 1) / p->grain;
    const scale s = {(grains << RATE_BITS) / p->grains, p->grain, nbytes};
    for (uint32_t k = 0; k < p->n_code; k++) {
        const han_term *t = &p->terms[k];
        if (!t->each) continue;
        han_instr *i = &p->fitted[k];
        uint64_t start = position(&s, t->start), length = position(&s, t->stop) - start;
        for (int ref = 0; ref < 4; ref++)
            i->off[ref] = t->offset[ref] + t->blocks[ref] * nbytes + start -
                          position(&s, t->origin[ref]);
        i->n = t->each == 1 ? length : length / t->each;
    }
    p->nbytes = nbytes;
}
