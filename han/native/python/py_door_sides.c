#include "python/py_door_sides.h"

#include <limits.h>

#include "python/py_types.h"

static _Thread_local han_handle missed;

han_handle han_door_missed(void) {
    const han_handle type = missed;
    missed = 0;
    return type;
}

/* The elements of a type if they move as they lie in memory, or NULL. */
static const han_element *element_of(const han_caller *self, han_handle type) {
    const han_element *e = han_element_find(&self->reader->known, HAN_BY_HANDLE, (uint64_t)type);
    const han_known_type *t = e ? NULL : han_type_known(type);
    return t && han_is_dense(t) ? &t->element : e;
}

/* Take notice of a type that is not known. */
static bool misses(han_handle type) {
    missed = type;
    return false;
}

/* Take a type whose elements are packed; NULL if it is not known. */
static const han_known_type *has_gaps(han_handle type, han_buffer *b) {
    const han_known_type *t = han_type_known(type);
    if (!t) return NULL;
    b->element = &t->element;
    b->derived = true;
    b->type = type;
    b->size = t->element.size;
    b->extent = t->extent;
    return t;
}

/* Read elements of such a type; `blocks` times so many. */
static bool reads_packed(const han_door_side *side, uint64_t blocks, han_buffer *b) {
    const han_known_type *t = has_gaps(side->type, b);
    uint64_t before;
    if (!t) return misses(side->type);
    if (__builtin_mul_overflow((uint64_t)side->n, blocks, &b->count) || b->count > INT_MAX ||
        __builtin_mul_overflow(b->count, b->size, &b->nbytes) || b->nbytes > INT_MAX)
        return false;
    b->packed = b->nbytes;
    b->span = 0;
    return !b->count || (!__builtin_mul_overflow(b->count - 1, b->extent, &before) &&
                         !__builtin_add_overflow(before, t->behind, &b->span));
}

/* Read the elements of a side, or those of `blocks` such blocks. */
static bool reads_times(const han_caller *self, const han_door_side *side, uint64_t blocks,
                        han_buffer *b) {
    b->element = element_of(self, side->type);
    b->data = (uint8_t *)(uintptr_t)side->data;
    if (side->n < 0 || (!side->data && side->n)) return false;
    if (!b->element) return reads_packed(side, blocks, b);
    return !__builtin_mul_overflow((uint64_t)side->n, b->element->size, &b->nbytes) &&
           !__builtin_mul_overflow(b->nbytes, blocks, &b->nbytes);
}

bool han_door_reads(const han_caller *self, const han_door_side *side, han_buffer *b) {
    return reads_times(self, side, 1, b);
}

bool han_door_reads_blocks(const han_caller *self, const han_door_side *side, han_buffer *b,
                           uint64_t *nbytes) {
    if (!reads_times(self, side, (uint64_t)self->size, b)) return false;
    *nbytes = b->nbytes / (uint64_t)self->size;
    return true;
}

/* ---- blocks of their own sizes --------------------------------------------------------------- */

static int64_t number(const void *numbers, bool large, int32_t k) {
    return large ? ((const int64_t *)numbers)[k] : ((const int *)numbers)[k];
}

bool han_door_reads_sizes(const han_caller *self, han_door_told t, han_buffer *b,
                          han_door_sized to) {
    uint64_t at = 0, reach = 0, *bytes = to.bytes, *places = to.places;
    const bool typed = t.form == HAN_DOOR_TYPED;
    const han_known_type *packed = NULL;
    bool joined = false; /* blocks of a rank */
    han_handle type = typed ? 0 : t.side->type;
    if (t.n && t.form != HAN_DOOR_EQUAL && !t.side->counts) return false;
    if (t.n && !typed && !(b->element = element_of(self, type)) && !(packed = has_gaps(type, b)))
        return misses(type);
    for (int32_t k = 0; k < t.n; k++) {
        const int32_t r = t.ranks ? t.ranks[k] : k;
        const int64_t n = t.form ? number(t.side->counts, t.large, k) : t.side->n;
        if (n < 0) return false;
        if (!n) continue;
        if (typed) {
            type = han_handle_at(&self->reader->mpi, t.side->types, k);
            packed = NULL;
            b->element = element_of(self, type);
            if (!b->element && !(packed = has_gaps(type, b))) return misses(type);
        }
        const uint64_t size = b->element->size;
        int64_t place = t.same           ? 0
                        : t.side->places ? number(t.side->places, t.far, k)
                                         : (int64_t)at;
        at += (uint64_t)n;
        if (place < 0 || n > INT32_MAX || (uint64_t)n * size > INT32_MAX) return false;
        if (!typed && __builtin_mul_overflow(place, packed ? packed->extent : size, &place))
            return false;
        if (r < 0) continue;
        if (!bytes[r]) places[r] = (uint64_t)place;
        if (packed ? bytes[r] : places[r] + bytes[r] != (uint64_t)place) return false;
        joined = joined || bytes[r];
        bytes[r] += (uint64_t)n * size;
        if (bytes[r] > INT32_MAX) return false;
        const uint64_t span =
            packed ? (uint64_t)(n - 1) * packed->extent + packed->behind : bytes[r];
        if (places[r] + span > reach) reach = places[r] + span;
        to.elements[r] = (uint64_t)n;
        if (typed) to.types[r] = (uint64_t)type;
    }
    b->data = (uint8_t *)(uintptr_t)t.side->data;
    b->nbytes = b->span = reach;
    return (t.side->data || !reach) && !(joined && b->derived);
}
