#include "datatypes.h"

/* A type of one inner type: the numbers that it was made with, and the inner one's extent. */
typedef struct {
    enum han_combiner combiner;
    int64_t extent; /* of the inner type */
    int64_t numbers[HAN_TYPE_NUMBERS];
} made;

/* Add the run of a grid, with its pieces, at some place. */
static bool append(han_grid *g, const han_grid *part, int64_t place) {
    if (part->loops) return false;
    if (!part->pieces) return han_grid_append(g, place + part->first, part->run);
    for (int32_t k = 0; k < part->pieces; k++)
        if (!han_grid_append(g, place + part->first + part->piece[k].at, part->piece[k].n))
            return false;
    return true;
}

/* Blocks of any length at any place: pieces of a run. */
static bool uneven_blocks(const made *t, int64_t count, const int64_t *lengths, int step,
                          const int64_t *places, int64_t unit, han_grid *g) {
    const han_grid inner = *g;
    *g = han_grid_of(0);
    for (int64_t k = 0; k < count; k++) {
        han_grid block = inner;
        if (!han_grid_repeat(&block, (uint64_t)lengths[k * step], t->extent) ||
            !append(g, &block, places[k] * unit))
            return false;
    }
    return true;
}

/* Blocks of an inner type: `lengths` in elements of it, `places` in units of some bytes. `step` is 0 if all
 * have the length of the first one. */
static bool blocks(const made *t, int64_t count, const int64_t *lengths, int step,
                   const int64_t *places, int64_t unit, han_grid *g) {
    const int64_t stride = count > 1 ? places[1] - places[0] : 0;
    for (int64_t k = 1; k < count; k++)
        if (lengths[k * step] != lengths[0] || places[k] - places[k - 1] != stride)
            return uneven_blocks(t, count, lengths, step, places, unit, g);
    if (!count) return han_grid_repeat(g, 0, 0);
    g->first += places[0] * unit;
    return han_grid_repeat(g, (uint64_t)lengths[0], t->extent) &&
           han_grid_repeat(g, (uint64_t)count, stride * unit);
}

/* A part of an array: numbers of axes, their lengths in the array, in the part, where the part begins,
 * and which axis is the innermost. */
static bool subarray(const han_mpi *m, const made *t, han_grid *g) {
    const int64_t axes = t->numbers[0];
    const int64_t *whole = t->numbers + 1, *part = whole + axes, *start = part + axes;
    const bool last_innermost = start[axes] == m->order_c;
    int64_t stride = t->extent;
    for (int64_t k = 0; k < axes; k++) {
        const int64_t axis = last_innermost ? axes - 1 - k : k;
        g->first += start[axis] * stride;
        if (!han_grid_repeat(g, (uint64_t)part[axis], stride)) return false;
        stride *= whole[axis];
    }
    return true;
}

/* Turn the grid of the inner type into that of a type. */
static bool combine(const han_mpi *m, const made *t, han_grid *g) {
    const int64_t *n = t->numbers;
    switch (t->combiner) {
    case HAN_DUP:
    case HAN_RESIZED:
        return true;
    case HAN_CONTIGUOUS:
        return han_grid_repeat(g, (uint64_t)n[0], t->extent);
    case HAN_VECTOR:
    case HAN_HVECTOR:
        return han_grid_repeat(g, (uint64_t)n[1], t->extent) &&
               han_grid_repeat(g, (uint64_t)n[0],
                               n[2] * (t->combiner == HAN_VECTOR ? t->extent : 1));
    case HAN_INDEXED:
        return blocks(t, n[0], n + 1, 1, n + 1 + n[0], t->extent, g);
    case HAN_HINDEXED:
    case HAN_STRUCT:
        return blocks(t, n[0], n + 1, 1, n + 1 + n[0], 1, g);
    case HAN_INDEXED_BLOCK:
        return blocks(t, n[0], n + 1, 0, n + 2, t->extent, g);
    case HAN_HINDEXED_BLOCK:
        return blocks(t, n[0], n + 1, 0, n + 2, 1, g);
    case HAN_SUBARRAY:
        return subarray(m, t, g);
    default:
        return false;
    }
}

/* The grid of a predefined type, if it has no gaps. */
static bool predefined(const han_mpi *m, han_handle type, han_grid *g, int64_t *extent) {
    han_type_facts f;
    if (han_type_facts_of(m, type, &f) || f.size != f.extent) return false;
    *g = han_grid_of((uint64_t)f.size);
    *extent = f.extent;
    return true;
}

/* Blocks of types of their own, as the members of a structure: pieces of a run. */
static bool join(int64_t count, const int64_t *numbers, han_grid *parts, const int64_t *extents,
                 han_grid *g) {
    const int64_t *lengths = numbers + 1, *places = lengths + count;
    *g = han_grid_of(0);
    for (int64_t k = 0; k < count; k++)
        if (!han_grid_repeat(&parts[k], (uint64_t)lengths[k], extents[k]) ||
            !append(g, &parts[k], places[k]))
            return false;
    return true;
}

/* Find the grid of one element, and the extent of the type. Handles of inner types are given back. */
static bool find_grid(const han_mpi *m, han_handle type, han_grid *g, int64_t *extent, int depth) {
    han_envelope e;
    made t;
    han_handle inner[HAN_TYPE_NUMBERS];
    han_grid parts[HAN_TYPE_NUMBERS];
    int64_t extents[HAN_TYPE_NUMBERS];
    if (!depth || han_type_envelope(m, type, &e)) return false;
    if (!e.types) return predefined(m, type, g, extent);
    t.combiner = han_combiner_of(m, e.combiner);
    if (t.combiner >= HAN_DARRAY || han_type_contents(m, type, &e, t.numbers, inner)) return false;
    bool found = true;
    for (int64_t k = 0; k < e.types; k++) {
        found = found && find_grid(m, inner[k], &parts[k], &extents[k], depth - 1);
        found = !han_type_drop(m, inner[k]) && found;
    }
    if (!found || han_type_extent(m, type, extent)) return false;
    if (e.types > 1) return join(e.types, t.numbers, parts, extents, g);
    *g = parts[0];
    t.extent = extents[0];
    return combine(m, &t, g);
}

han_grid han_grid_of_type(const han_mpi *m, han_handle type, int64_t *extent) {
    enum { DEEPEST = 8 };
    han_grid g;
    *extent = 0;
    return find_grid(m, type, &g, extent, DEEPEST) ? g : han_no_grid();
}
