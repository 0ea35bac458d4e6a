#include "simulate/world.h"

#include <stdlib.h>

bool sim_grow(sim_state *s, void **items, size_t *room, size_t length, size_t each) {
    if (length < *room) return true;
    size_t more = *room ? 2 * *room : 8;
    void *found = realloc(*items, more * each);
    if (!found) {
        s->failed = true;
        return false;
    }
    *items = found;
    *room = more;
    return true;
}

void sim_append(sim_state *s, sim_list *list, int32_t item) {
    if (sim_grow(s, (void **)&list->items, &list->room, list->length, sizeof(int32_t)))
        list->items[list->length++] = item;
}

static bool before(const sim_event *a, const sim_event *b) {
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

/* Each event of a heap has up to WAYS behind it: a heap of few levels misses the caches less often. */
enum { WAYS = 4 };

void sim_push(sim_state *s, sim_heap *heap, sim_event event) {
    if (!sim_grow(s, (void **)&heap->events, &heap->room, heap->length, sizeof event)) return;
    size_t k = heap->length++;
    for (; k && before(&event, &heap->events[(k - 1) / WAYS]); k = (k - 1) / WAYS)
        heap->events[k] = heap->events[(k - 1) / WAYS];
    heap->events[k] = event;
}

/* The earliest of the events behind event k, of which there is one. */
static size_t earliest(const sim_heap *heap, size_t k) {
    size_t best = WAYS * k + 1, end = best + WAYS < heap->length ? best + WAYS : heap->length;
    for (size_t other = best + 1; other < end; other++)
        if (before(&heap->events[other], &heap->events[best])) best = other;
    return best;
}

sim_event sim_pop(sim_heap *heap) {
    sim_event *events = heap->events, first = events[0], last = events[--heap->length];
    size_t k = 0;
    for (size_t child; WAYS * k + 1 < heap->length; k = child) {
        child = earliest(heap, k);
        if (!before(&events[child], &last)) break;
        events[k] = events[child];
    }
    events[k] = last;
    return first;
}
