/* Every reduction kernel against a simple scalar reference, for each instruction set available. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/copies.h"
#include "data/kernels.h"

static const char *const DTYPES[HAN_DTYPES] = {"bool", "i8",  "i16", "i32",  "i64",
                                               "u8",   "u16", "u32", "u64",  "f16",
                                               "f32",  "f64", "c64", "c128", "bf16"};
static const char *const OPS[HAN_OPS] = {"sum", "prod", "max",  "min", "land",
                                         "lor", "lxor", "band", "bor", "bxor"};
static const char *const ISAS[] = {"avx512", "avx2", "neon", "baseline"};

enum { LARGEST = 4099, GUARD = 64, ROOM = LARGEST * 16 + 2 * GUARD };

static void fail(const char *what, enum han_op op, enum han_dtype dtype, size_t count, size_t at) {
    printf("FAILED: %s: %s of %s, isa %s, count %zu, element %zu\n", what, OPS[op], DTYPES[dtype],
           han_kernels_isa(), count, at);
    exit(1);
}

static uint64_t random_bits(void) {
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1du;
}

/* ---- float16, through double and ldexp ---- */

static double half_value(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const double sign = h & 0x8000 ? -1.0 : 1.0;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

static uint16_t half_nearest(double value) {
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    const double magnitude = fabs(value);
    if (isnan(value)) return 0x7e00;
    if (magnitude >= 65520.0) return sign | 0x7c00;
    int exponent = -14;
    while (magnitude >= ldexp(1.0, exponent + 1)) exponent++;
    const int steps = (int)nearbyint(ldexp(magnitude, 10 - exponent)); /* ties to even */
    return (uint16_t)(sign | (((exponent + 14) << 10) + steps));
}

/* ---- the reference: one element of each class of dtype ---- */

static bool is_integer(enum han_dtype d) { return d >= HAN_I8 && d <= HAN_U64; }
static bool is_signed(enum han_dtype d) { return d >= HAN_I8 && d <= HAN_I64; }
static bool is_float(enum han_dtype d) { return (d >= HAN_F16 && d <= HAN_F64) || d == HAN_BF16; }
static bool is_complex(enum han_dtype d) { return d == HAN_C64 || d == HAN_C128; }

static bool is_defined(enum han_op op, enum han_dtype d) {
    if (op <= HAN_PROD) return d != HAN_BOOL;
    if (op <= HAN_MIN) return is_integer(d) || is_float(d);
    return is_integer(d) || (d == HAN_BOOL && op <= HAN_LXOR);
}

static uint64_t reference_integer(enum han_op op, bool with_sign, uint64_t p, uint64_t q) {
    const bool less = with_sign ? (int64_t)p < (int64_t)q : p < q;
    switch (op) {
    case HAN_SUM:
        return p + q;
    case HAN_PROD:
        return p * q;
    case HAN_MAX:
        return less ? q : p;
    case HAN_MIN:
        return less ? p : q;
    case HAN_LAND:
        return p && q;
    case HAN_LOR:
        return p || q;
    case HAN_LXOR:
        return !p != !q;
    case HAN_BAND:
        return p & q;
    case HAN_BOR:
        return p | q;
    case HAN_BXOR:
        return p ^ q;
    default:
        abort();
    }
}

static double reference_double(enum han_op op, double p, double q) {
    switch (op) {
    case HAN_SUM:
        return p + q;
    case HAN_PROD:
        return p * q;
    case HAN_MAX:
        return p > q ? p : q;
    case HAN_MIN:
        return p < q ? p : q;
    default:
        abort();
    }
}

/* Little-endian machines only, as are all that the kernels are built for. */
static uint64_t load_integer(const void *from, size_t size, bool with_sign) {
    uint64_t value = 0;
    memcpy(&value, from, size);
    const unsigned unused = 64 - 8 * (unsigned)size;
    value <<= unused;
    return with_sign ? (uint64_t)((int64_t)value >> unused) : value >> unused;
}

static void reference_half(enum han_op op, void *dst, const void *a, const void *b) {
    uint16_t p, q;
    memcpy(&p, a, 2);
    memcpy(&q, b, 2);
    const uint16_t r = half_nearest(reference_double(op, half_value(p), half_value(q)));
    memcpy(dst, &r, 2);
}

static float bfloat_value(uint16_t b) {
    const uint32_t bits = (uint32_t)b << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* The bfloat16 nearest to a float: one of the two around it, and the even one of a tie. */
static uint16_t bfloat_nearest(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1);
    if (isnan(value) || isinf(value) || !(bits & 0xffffu)) return isnan(value) ? 0x7fc0 : below;
    const double step = ldexp(1.0, (bits >> 23 & 0xff ? (int)(bits >> 23 & 0xff) - 127 : -126) - 7);
    const double over = fabs((double)value) - fabs((double)bfloat_value(below));
    if (over == step / 2) return below & 1 ? above : below;
    return over > step / 2 ? above : below;
}

static void reference_bfloat(enum han_op op, void *dst, const void *a, const void *b) {
    uint16_t p, q;
    memcpy(&p, a, 2);
    memcpy(&q, b, 2);
    const double exact = reference_double(op, bfloat_value(p), bfloat_value(q));
    const uint16_t r = bfloat_nearest((float)exact); /* rounded to float first, as documented */
    memcpy(dst, &r, 2);
}

static void reference_f32(enum han_op op, void *dst, const void *a, const void *b) {
    float p, q;
    memcpy(&p, a, 4);
    memcpy(&q, b, 4);
    /* Rounding to double first is harmless for one operation on floats. */
    const float r = (float)reference_double(op, p, q);
    memcpy(dst, &r, 4);
}

static void reference_f64(enum han_op op, void *dst, const void *a, const void *b) {
    double p, q;
    memcpy(&p, a, 8);
    memcpy(&q, b, 8);
    const double r = reference_double(op, p, q);
    memcpy(dst, &r, 8);
}

/* volatile: each product is rounded, and no compiler fuses operations. */
static void reference_c64(enum han_op op, void *dst, const void *a, const void *b) {
    float p[2], q[2], r[2];
    memcpy(p, a, 8);
    memcpy(q, b, 8);
    const volatile float rr = p[0] * q[0], ii = p[1] * q[1], ri = p[0] * q[1], ir = p[1] * q[0];
    r[0] = op == HAN_SUM ? p[0] + q[0] : rr - ii;
    r[1] = op == HAN_SUM ? p[1] + q[1] : ri + ir;
    memcpy(dst, r, 8);
}

static void reference_c128(enum han_op op, void *dst, const void *a, const void *b) {
    double p[2], q[2], r[2];
    memcpy(p, a, 16);
    memcpy(q, b, 16);
    const volatile double rr = p[0] * q[0], ii = p[1] * q[1], ri = p[0] * q[1], ir = p[1] * q[0];
    r[0] = op == HAN_SUM ? p[0] + q[0] : rr - ii;
    r[1] = op == HAN_SUM ? p[1] + q[1] : ri + ir;
    memcpy(dst, r, 16);
}

static void reference(enum han_op op, enum han_dtype d, void *dst, const void *a, const void *b) {
    const size_t size = han_dtype_size(d);
    switch (d) {
    case HAN_F16:
        reference_half(op, dst, a, b);
        return;
    case HAN_BF16:
        reference_bfloat(op, dst, a, b);
        return;
    case HAN_F32:
        reference_f32(op, dst, a, b);
        return;
    case HAN_F64:
        reference_f64(op, dst, a, b);
        return;
    case HAN_C64:
        reference_c64(op, dst, a, b);
        return;
    case HAN_C128:
        reference_c128(op, dst, a, b);
        return;
    default:
        break;
    }
    const uint64_t r = reference_integer(op, is_signed(d), load_integer(a, size, is_signed(d)),
                                         load_integer(b, size, is_signed(d)));
    memcpy(dst, &r, size);
}

/* ---- operands and comparison ---- */

static void fill_value(enum han_dtype d, unsigned char *to) {
    static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-310, 1e-40, 3e38};
    const uint64_t bits = random_bits();
    const bool odd_one = bits >> 60 == 0;
    /* quarters in +-1024: sums are exact, products often are not */
    const double number = odd_one ? special[bits % 8] : (double)(int)(bits % 8192) / 4 - 1024;
    const float single = (float)number;
    switch (d) {
    case HAN_BOOL:
        *to = odd_one ? 7 : bits & 1;
        return; /* any nonzero byte is true */
    case HAN_F32:
    case HAN_C64:
        memcpy(to, &single, 4);
        return;
    case HAN_F64:
    case HAN_C128:
        memcpy(to, &number, 8);
        return;
    default:
        memcpy(to, odd_one ? &(uint64_t){0} : &bits, han_dtype_size(d));
    }
}

static void fill(enum han_dtype d, unsigned char *to, size_t count) {
    const size_t size = is_complex(d) ? han_dtype_size(d) / 2 : han_dtype_size(d);
    const size_t values = is_complex(d) ? 2 * count : count;
    for (size_t i = 0; i < values; i++) fill_value(d, to + i * size);
}

static bool same_real(enum han_dtype d, const void *x, const void *y) {
    if (d == HAN_F16) {
        uint16_t h[2];
        memcpy(h, x, 2);
        memcpy(h + 1, y, 2);
        return h[0] == h[1] || (isnan(half_value(h[0])) && isnan(half_value(h[1])));
    }
    if (d == HAN_BF16) {
        uint16_t h[2];
        memcpy(h, x, 2);
        memcpy(h + 1, y, 2);
        return h[0] == h[1] || (isnan(bfloat_value(h[0])) && isnan(bfloat_value(h[1])));
    }
    if (d == HAN_F32) {
        float f[2];
        memcpy(f, x, 4);
        memcpy(f + 1, y, 4);
        return memcmp(f, f + 1, 4) == 0 || (isnan(f[0]) && isnan(f[1]));
    }
    double f[2];
    memcpy(f, x, 8);
    memcpy(f + 1, y, 8);
    return memcmp(f, f + 1, 8) == 0 || (isnan(f[0]) && isnan(f[1]));
}

/* Whether both have equal bits or are NaNs. */
static bool same(enum han_dtype d, const unsigned char *x, const unsigned char *y) {
    const size_t size = han_dtype_size(d);
    if (is_complex(d)) {
        const enum han_dtype part = d == HAN_C64 ? HAN_F32 : HAN_F64;
        return same_real(part, x, y) && same_real(part, x + size / 2, y + size / 2);
    }
    return is_float(d) ? same_real(d, x, y) : memcmp(x, y, size) == 0;
}

/* ---- one call ---- */

enum placement { SEPARATE, DST_IS_A, DST_IS_B, DST_IS_BOTH, PLACEMENTS };

struct buffers {
    unsigned char a[ROOM], b[ROOM], dst[ROOM], dst2[ROOM], expected[ROOM];
};

static void check_guards(const unsigned char *start, size_t bytes, enum han_op op, enum han_dtype d,
                         size_t count) {
    for (size_t i = 1; i <= GUARD / 2; i++)
        if (start[-(ptrdiff_t)i] != 0xa5 || start[bytes + i - 1] != 0xa5)
            fail("wrote outside the destination", op, d, count, i);
}

static void check_call(struct buffers *m, enum han_op op, enum han_dtype d, size_t count,
                       size_t offset, enum placement placement, bool twice) {
    const size_t size = han_dtype_size(d), bytes = size * count;
    unsigned char *const dst = m->dst + GUARD / 2 + offset;
    unsigned char *const dst2 = m->dst2 + GUARD / 2 + offset % 3;
    unsigned char *const a = placement & DST_IS_A ? dst : m->a + offset * 5 % 17;
    unsigned char *const b = placement & DST_IS_B ? dst : m->b + offset * 7 % 19;
    memset(dst - GUARD / 2, 0xa5, bytes + GUARD);
    memset(dst2 - GUARD / 2, 0xa5, bytes + GUARD);
    fill(d, a, count);
    if (b != a) fill(d, b, count);
    for (size_t i = 0; i < count; i++)
        reference(op, d, m->expected + i * size, a + i * size, b + i * size);

    if (twice)
        han_reduce2_kernel(op, d)(dst, dst2, a, b, count);
    else
        han_reduce_kernel(op, d)(dst, a, b, count);

    for (size_t i = 0; i < count; i++)
        if (!same(d, dst + i * size, m->expected + i * size)) fail("wrong result", op, d, count, i);
    if (twice && memcmp(dst, dst2, bytes) != 0) fail("second destination differs", op, d, count, 0);
    check_guards(dst, bytes, op, d, count);
    check_guards(dst2, twice ? bytes : 0, op, d, count);
}

static size_t check_pair(struct buffers *m, enum han_op op, enum han_dtype d) {
    static const size_t offsets[] = {0, 1, 4, 11}, large[] = {255, 1000, LARGEST};
    size_t calls = 0;
    for (size_t n = 0; n < 68 + sizeof large / sizeof large[0]; n++)
        for (size_t o = 0; o < 4; o++)
            for (int placement = SEPARATE; placement < PLACEMENTS; placement++, calls += 2) {
                const size_t count = n < 68 ? n : large[n - 68];
                check_call(m, op, d, count, offsets[o], (enum placement)placement, false);
                check_call(m, op, d, count, offsets[o], (enum placement)placement, true);
            }
    return calls;
}

static void check_pairs(struct buffers *m) {
    size_t pairs = 0, calls = 0;
    for (int op = 0; op < HAN_OPS; op++)
        for (int d = 0; d < HAN_DTYPES; d++) {
            const bool defined = is_defined((enum han_op)op, (enum han_dtype)d);
            if (!han_reduce_kernel((enum han_op)op, (enum han_dtype)d) == defined ||
                !han_reduce2_kernel((enum han_op)op, (enum han_dtype)d) == defined)
                fail("wrong set of pairs", (enum han_op)op, (enum han_dtype)d, 0, 0);
            if (!defined) continue;
            pairs++;
            calls += check_pair(m, (enum han_op)op, (enum han_dtype)d);
        }
    printf("%s: %zu pairs agree in %zu calls, %d pairs are undefined\n", han_kernels_isa(), pairs,
           calls, HAN_OPS * HAN_DTYPES - (int)pairs);
}

/* Every float16 or bfloat16 with operands that round, overflow, underflow, tie and cancel, in
 * calls of `span` elements: 1 runs only the scalar tails, 64 only the vector loops. */
static void check_halves(enum han_dtype dtype, size_t span) {
    static const uint16_t partners[] = {0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3800, 0x3c00,
                                        0xbc00, 0x3c01, 0x1400, 0x0c00, 0x6400, 0x7bff, 0xfbff,
                                        0x7c00, 0xfc00, 0x7e00, 0x7c01, 0x3555, 0x2e66};
    enum { ALL = 65536 };
    uint16_t *const p = malloc(3 * ALL * sizeof *p), *const q = p + ALL, *const r = q + ALL;
    if (!p) exit(1);
    for (int i = 0; i < ALL; i++) p[i] = (uint16_t)i;
    for (size_t k = 0; k <= sizeof partners / sizeof partners[0]; k++)
        for (int op = HAN_SUM; op <= HAN_MIN; op++) {
            const han_reduce_fn reduce = han_reduce_kernel((enum han_op)op, dtype);
            for (int i = 0; i < ALL; i++)
                q[i] = k < sizeof partners / sizeof partners[0] ? partners[k]
                                                                : (uint16_t)random_bits();
            for (size_t i = 0; i < ALL; i += span)
                reduce(r + i, p + i, q + i, ALL - i < span ? ALL - i : span);
            for (int i = 0; i < ALL; i++) {
                uint16_t expected;
                reference((enum han_op)op, dtype, &expected, p + i, q + i);
                if (!same(dtype, (unsigned char *)(r + i), (unsigned char *)&expected))
                    fail("wrong rounding", (enum han_op)op, dtype, span, (size_t)i);
            }
        }
    free(p);
    printf("%s: all 65536 values of %s convert and round, %zu a call\n", han_kernels_isa(),
           DTYPES[dtype], span);
}

static void check_half_reference(void) {
    for (int h = 0; h < 65536; h++)
        if (!isnan(half_value((uint16_t)h)) && half_nearest(half_value((uint16_t)h)) != h)
            fail("the reference itself does not round-trip", HAN_SUM, HAN_F16, 1, (size_t)h);
}

static void check_copy(const char *name, void (*copy)(void *, const void *, size_t)) {
    enum { MOST = 2 * HAN_WALK + 300, ROOM = MOST + 200 };
    static unsigned char from[ROOM], to[ROOM];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i * 31 + i / 251 + 7);
    for (size_t n = 0; n <= MOST; n += n < 500 ? 1 : 61)
        for (size_t offset = 0; offset < 17; offset++) {
            unsigned char *d = to + 40 + offset, *s = from + (offset * 23 + n) % 64;
            memset(to, 0xa5, sizeof to);
            copy(d, s, n);
            if (memcmp(d, s, n) != 0 || d[-1] != 0xa5 || d[n] != 0xa5) {
                printf("FAILED: %s of %zu bytes at offset %zu\n", name, n, offset);
                exit(1);
            }
        }
    copy(NULL, NULL, 0);
    printf("%s: 0 to %d bytes at 17 offsets\n", name, MOST);
}

static void check_outside_the_enums(void) {
    if (han_reduce_kernel(HAN_OPS, HAN_F32) || han_reduce2_kernel(HAN_SUM, HAN_DTYPES) ||
        han_dtype_size(HAN_DTYPES) != 0) {
        printf("FAILED: a value outside the enums was taken for a pair\n");
        exit(1);
    }
}

#ifdef HAN_NO_STRINGS /* its kernels are objects of the plain build, apart from those that copy */
enum { TRIED = 0 };
#else
enum { TRIED = sizeof ISAS / sizeof ISAS[0] };
#endif

int main(void) {
    struct buffers *const m = malloc(sizeof *m);
    if (!m) return 1;
    printf("best instruction set: %s\n", han_kernels_isa());
    check_half_reference();
    check_outside_the_enums();
    check_copy("han_copy", han_copy);
    check_copy("han_copy_in", han_copy_in);
    check_copy("han_copy_paged", han_copy_paged);
    check_copy("han_copy_streaming", han_copy_streaming);
    check_copy("han_copy_out", han_copy_out);
    for (int i = 0; i < TRIED; i++) {
        han_kernels_limit(ISAS[i]);
        if (strcmp(han_kernels_isa(), ISAS[i]) != 0) continue; /* not on this machine */
        check_halves(HAN_F16, 1);
        check_halves(HAN_F16, 64);
        check_halves(HAN_BF16, 1);
        check_halves(HAN_BF16, 64);
        check_pairs(m);
    }
    free(m);
    return 0;
}
