/* The allocator of arenas: threads take, fill, resize and give back memory in random order, and no
 * thread changes the bytes of another. Free memory goes back to the system.
 *
 * test_arena FILE [ROUNDS] */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/arena.h"

enum { THREADS = 4, LIVING = 48, MIB = 1 << 20, SIZE = 96 * MIB, SLABS = 6 * 65536 };

typedef struct {
    uint8_t *at;
    size_t bytes;
    uint8_t value;
} piece;

typedef struct {
    han_arena *arena;
    uint64_t rounds, luck;
} worker;

static void require(bool holds, const char *what) {
    if (holds) return;
    printf("FAILED: %s\n", what);
    exit(1);
}

static uint64_t chance(worker *w) {
    w->luck = w->luck * 6364136223846793005u + 1442695040888963407u;
    return w->luck >> 33;
}

static size_t some_size(worker *w) {
    switch (chance(w) % 4) {
    case 0:
        return chance(w) % 70;
    case 1:
        return chance(w) % 2100;
    case 2:
        return chance(w) % 20000;
    default:
        return chance(w) % 300000;
    }
}

static bool all(const piece *p, size_t bytes, uint8_t value) {
    for (size_t k = 0; k < bytes; k++)
        if (p->at[k] != value) return false;
    return true;
}

static void fill(worker *w, piece *p) {
    p->value = (uint8_t)(1 + chance(w) % 255);
    memset(p->at, p->value, p->bytes);
}

static void take(worker *w, piece *p) {
    bool zero = chance(w) % 2;
    p->bytes = some_size(w);
    p->at = han_arena_take(w->arena, p->bytes, zero);
    require(p->at, "there is room");
    require(han_arena_holds(w->arena, (uintptr_t)p->at, p->bytes), "it is in the arena");
    require((uintptr_t)p->at % 64 == 0, "it begins at a line");
    require(!zero || all(p, p->bytes, 0), "zeros where they were asked for");
    fill(w, p);
}

static void change(worker *w, piece *p) {
    size_t before = p->bytes;
    p->bytes = some_size(w);
    p->at = han_arena_resize(w->arena, p->at, p->bytes);
    require(p->at && all(p, before < p->bytes ? before : p->bytes, p->value), "the same bytes");
    fill(w, p);
}

static void *work(void *argument) {
    worker *w = argument;
    piece pieces[LIVING] = {{NULL, 0, 0}};
    for (uint64_t k = 0; k < w->rounds; k++) {
        piece *p = &pieces[chance(w) % LIVING];
        if (!p->at) {
            take(w, p);
            continue;
        }
        require(all(p, p->bytes, p->value), "nobody else writes there");
        if (chance(w) % 3) {
            han_arena_give(w->arena, p->at);
            p->at = NULL;
        } else {
            change(w, p);
        }
    }
    for (int k = 0; k < LIVING; k++) han_arena_give(w->arena, pieces[k].at);
    return NULL;
}

static int new_file(size_t size) {
    int fd = memfd_create("arena", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size)) abort();
    return fd;
}

static size_t in_memory(int fd) {
    struct stat s;
    return fstat(fd, &s) ? 0 : (size_t)s.st_blocks * 512;
}

static void test_threads(uint64_t rounds) {
    int fd = new_file(SIZE);
    han_arena *a = han_arena_open(fd, SIZE, MIB, true);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    require(a, "the file can be mapped");
    for (uint64_t t = 0; t < THREADS; t++) {
        workers[t] = (worker){a, rounds, t + 1};
        if (pthread_create(&threads[t], NULL, work, &workers[t])) abort();
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    han_arena_facts facts = han_arena_tell(a);
    require(facts.taken <= SLABS && facts.kept <= MIB, "little is left");
    require(in_memory(fd) <= facts.taken + facts.kept, "the rest went back to the system");
    require(!facts.refusals, "nothing was refused");
    uint8_t *much = han_arena_take(a, SIZE / 8, true); /* wherever the remaining slabs are */
    require(much && !much[SIZE / 16], "holes grow together again");
    han_arena_give(a, much);
    han_arena_close(a);
}

static void test_no_room(void) {
    han_arena *a = han_arena_open(new_file(MIB), MIB, MIB, false);
    void *pages[256], *whole = han_arena_take(a, MIB, false);
    require(whole && !han_arena_take(a, 1, false), "no room for a byte");
    han_arena_give(a, whole);
    for (int k = 0; k < 256; k++)
        require((pages[k] = han_arena_take(a, 4096, false)), "room for all pages");
    require(!han_arena_take(a, 4096, false) && !han_arena_take(a, (size_t)1 << 62, false), "full");
    for (int k = 0; k < 256; k += 2) han_arena_give(a, pages[k]);
    require(!han_arena_take(a, 8192, false), "only every other page is free");
    require(han_arena_tell(a).error == ENOMEM && han_arena_tell(a).refused == 8192, "it says so");
    for (int k = 1; k < 256; k += 2) han_arena_give(a, pages[k]);
    require((whole = han_arena_take(a, MIB, false)), "all of it again");
    void *other = malloc(10);
    han_arena_give(a, other); /* memory of malloc is freed */
    han_arena_give(a, NULL);
    han_arena_close(a);
}

int main(int argc, char **argv) {
    uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
    test_threads(10 * rounds);
    test_no_room();
    return 0;
}
