/* Results are kept without a lock: threads that compute one at the same time store the same
 * value. */
#include "data/processor.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

enum {
    USUAL_CACHE = 32 << 20, /* bytes, where the system does not tell */
    MOST_NEAR = 16 << 20,   /* bytes for each processor at most (docs/decisions/cache-share.md) */
    MOST_MESH = 12 << 20,   /* the same on a mesh */
};

#if defined HAN_STRINGS_BY_MEMCPY || !defined __x86_64__
#undef HAN_NO_STRINGS
#define HAN_NO_STRINGS
#endif

#ifndef HAN_NO_STRINGS
/* Whether the processor reports fast short strings (FSRM). AMD processors report it from Zen 3 on,
 * but Zen 3 and 4 are slow if source and destination have nearby offsets within their pages
 * (glibc bug 30994): of AMD's, family 1Ah (Zen 5) and later count. */
static bool has_fast_strings(void) {
    enum { FSRM = 1 << 4, ZEN_5 = 0x1a };
    unsigned a, b, c, d, family;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & FSRM)) return false;
    if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx) return true;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
    return family >= ZEN_5;
}
#endif

#ifdef __x86_64__
han_vector_sets han_vectors;

/* The registers that the system saves, as bits of XCR0. */
static uint64_t saved_registers(void) {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Not every compiler's runtime library has what __builtin_cpu_supports calls. */
__attribute__((constructor)) static void look_for_vectors(void) {
    enum { VECTORS = 0x6, WIDE_VECTORS = 0xe6 }; /* in XCR0 */
    const unsigned first = bit_OSXSAVE | bit_AVX | bit_F16C;
    const unsigned wide = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & first) != first) return;
    uint64_t saved = saved_registers();
    if ((saved & VECTORS) != VECTORS || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    han_vectors.avx2 = b & bit_AVX2;
    han_vectors.avx512 =
        han_vectors.avx2 && (saved & WIDE_VECTORS) == WIDE_VECTORS && (b & wide) == wide;
}
#endif

/* Every processor but AMD's counts as a mesh. For others than Intel's servers this is a guess. */
bool han_on_mesh(void) {
#ifdef HAN_MESH
    return HAN_MESH;
#elif defined __x86_64__
    enum { UNKNOWN, YES, NO };
    static _Atomic int known;
    int mesh = atomic_load_explicit(&known, memory_order_relaxed);
    if (!mesh) {
        unsigned a, b, c, d;
        bool amd = __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
        mesh = amd ? NO : YES;
        atomic_store_explicit(&known, mesh, memory_order_relaxed);
    }
    return mesh == YES;
#else
    return true;
#endif
}

bool han_copies_strings(void) {
#ifdef HAN_STRINGS_BY_MEMCPY
    return true;
#elif !defined HAN_NO_STRINGS
    enum { UNKNOWN, YES, NO };
    static _Atomic int known;
    int fast = atomic_load_explicit(&known, memory_order_relaxed);
    if (!fast) {
        fast = has_fast_strings() ? YES : NO;
        atomic_store_explicit(&known, fast, memory_order_relaxed);
    }
    return fast == YES;
#else
    return false;
#endif
}

/* Count the numbers in a file that holds a list such as "0-3,8"; 0 if there is none. */
static unsigned count_listed(const char *path) {
    unsigned first, last, count = 0;
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%u", &first) == 1) {
        last = first;
        int next = fgetc(file);
        if (next == '-' && fscanf(file, "%u", &last) == 1) next = fgetc(file);
        count += last >= first ? last - first + 1 : 0;
        if (next != ',') break;
    }
    if (file) fclose(file);
    return count;
}

/* In a virtual machine sysconf and sysfs may report the cache of the whole processor, which other
 * machines use too: so each processor counts with MOST_NEAR or MOST_MESH bytes at most. */
size_t han_cache_share(unsigned ranks) {
    static _Atomic size_t known;
    static _Atomic unsigned parts;
    size_t bytes = atomic_load_explicit(&known, memory_order_acquire), kib = 0;
    if (!bytes) {
        FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
        if (file) {
            if (fscanf(file, "%zuK", &kib) != 1) kib = 0;
            fclose(file);
        }
        unsigned near = count_listed("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list");
        unsigned all = count_listed("/sys/devices/system/cpu/online");
        bytes = kib ? kib * 1024 : USUAL_CACHE;
        size_t most = han_on_mesh() ? MOST_MESH : MOST_NEAR;
        if (near && bytes / near > most) bytes = near * most;
        atomic_store_explicit(&parts, near && all > near ? all / near : 1, memory_order_relaxed);
        atomic_store_explicit(&known, bytes, memory_order_release);
    }
    unsigned caches = atomic_load_explicit(&parts, memory_order_relaxed);
    unsigned beside = (ranks + caches - 1) / caches;
    return bytes / (beside ? beside : 1);
}
