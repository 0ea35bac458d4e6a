/* Large data into cells: the data is right with each kind of store, and the kind follows the
 * costs. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/copies.h"
#include "data/stores.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#define MiB UINT64_C(1048576)

static void require(bool holds, const char *what) {
    if (holds) return;
    printf("FAILED: %s\n", what);
    exit(1);
}

/* The number of the next copies that use one kind of store. */
static int ways(han_ways *w, enum han_way way, int copies) {
    int n = 0;
    for (int k = 0; k < copies; k++) n += han_next_way(w) == way;
    return n;
}

static void the_kind_of_store_follows_the_costs(void) {
    static han_ways w;
    require(han_next_way(&w) == HAN_WAY_USUAL, "the ordinary way is tried first");
    han_note_stores(&w, HAN_WAY_USUAL, 50000, MiB);
    require(han_next_way(&w) == HAN_WAY_OTHER, "then the other one");
    han_note_stores(&w, HAN_WAY_OTHER, 900000, MiB); /* pages touched first */
    require(!han_usual_is_slow(&w), "memory takes longer");
    han_note_stores(&w, HAN_WAY_OTHER, 40000, MiB);
    require(w.cost[HAN_WAY_OTHER] < 50000, "the first touch is forgotten at once");
    require(!han_usual_is_slow(&w), "ordinary stores take somewhat longer");
    require(ways(&w, HAN_WAY_OTHER, 10 * 61) == 10, "now and then memory is tried");
    for (int k = 0; k < 20; k++) han_note_stores(&w, HAN_WAY_USUAL, 200000, MiB);
    require(han_usual_is_slow(&w), "ordinary stores take much longer");
    require(ways(&w, HAN_WAY_USUAL, 10 * 31) == 10, "now and then they are tried");
    han_note_stores(&w, HAN_WAY_USUAL, 30000, MiB);
    require(!han_usual_is_slow(&w), "one that is quick shows that caches are near again");
}

static void a_long_interruption_counts_little(void) {
    static han_ways w;
    han_note_stores(&w, HAN_WAY_OTHER, 40000, MiB);
    han_note_stores(&w, HAN_WAY_USUAL, 60000000000, MiB); /* more than the cost's type could hold */
    require(han_usual_is_slow(&w), "a first copy that was stopped for long is slow");
    han_note_stores(&w, HAN_WAY_USUAL, 50000, MiB);
    require(!han_usual_is_slow(&w), "and the next one right");
    for (int k = 0; k < 3; k++) han_note_stores(&w, HAN_WAY_USUAL, 60000000000, MiB);
    require(!han_usual_is_slow(&w), "stopped three times, it is no slow one yet");
    for (int k = 0; k < 100; k++) han_note_stores(&w, HAN_WAY_OTHER, 0, MiB);
    for (int k = 0; k < 100; k++) han_note_stores(&w, HAN_WAY_OTHER, 40000, MiB);
    require(w.cost[HAN_WAY_OTHER] > 20000, "times that no clock could tell are outgrown");
}

static void data_is_right(void) {
    enum { BYTES = HAN_WAYS_LEAST + 200, CALLS = 300 };
    static han_engine e;
    static unsigned char from[BYTES + 64], to[BYTES + 128];
    for (int k = 0; k < CALLS; k++) {
        size_t n = HAN_WAYS_LEAST + (size_t)k % 200, at = (size_t)k % 64;
        e.put.cost[HAN_WAY_OTHER] = 100; /* every other copy is stored past the caches */
        e.put.cost[HAN_WAY_USUAL] = k % 2 ? 1000 : 100;
        for (size_t b = 0; b < n; b++) from[at / 2 + b] = (unsigned char)(b * 7 + (size_t)k);
        memset(to, 0xee, sizeof to);
        han_copy_cells(&e, to + at, from + at / 2, n);
        require(!memcmp(to + at, from + at / 2, n), "what was put is there");
        require(to[at + n] == 0xee && (!at || to[at - 1] == 0xee), "and nothing beside it");
    }
}

/* Whether the upper halves of vector registers hold something, which makes the program's instructions
 * of SSE slow; false where the processor does not tell. */
static bool upper_halves_are_used(void) {
#ifdef __x86_64__
    unsigned a, b, c, d;
    enum { OSXSAVE = 1 << 27, TELLS = 1 << 2, AVX = 1 << 2 };
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE)) return false;
    if (!__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || !(a & TELLS)) return false;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
    return a & AVX;
#else
    return false;
#endif
}

static void registers_are_left_clear(void) {
    enum { BYTES = 1 << 19 };
    static unsigned char from[BYTES], to[BYTES];
    static void (*const copies[])(void *, const void *, size_t) = {
        han_copy, han_copy_in, han_copy_paged, han_copy_streaming, han_copy_out};
    for (size_t k = 0; k < sizeof copies / sizeof *copies; k++)
        for (size_t n = 8; n <= BYTES; n *= 8) {
            copies[k](to, from, n);
            require(!upper_halves_are_used(), "registers are left clear");
        }
}

int main(void) {
    registers_are_left_clear();
    the_kind_of_store_follows_the_costs();
    a_long_interruption_counts_little();
    data_is_right();
    return 0;
}
