// A register of floats at a time, in GCC's and Clang's vector extension, and the elementary functions that the row passes need.
// Errors are stated in units of the last place, u = 2^-24 relative.

#pragma once
#include <cstdint>
#include <cstring>
#include <limits>

// As wide as the machine's registers: wider vectors would be taken apart and passed through memory, at a quarter of the speed.
#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
typedef float Floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(LANES * sizeof(int32_t))));

constexpr float INF = std::numeric_limits<float>::infinity();

inline Floats splat(float x) { return x - Floats{}; }
inline Floats bits(Ints x) { return (Floats)x; }
inline Ints bits(Floats x) { return (Ints)x; }
// NaN stays NaN in both.
inline Floats at_least(Floats x, float low) { return x < low ? splat(low) : x; }
inline Floats at_most(Floats x, float high) { return x > high ? splat(high) : x; }

inline Floats load(const float* from, int64_t count, float rest) {
    Floats x;
    if (count >= LANES) {
        std::memcpy(&x, from, sizeof x);
    } else {
        x = splat(rest);
        std::memcpy(&x, from, count * sizeof(float));
    }
    return x;
}

inline void store(float* to, int64_t count, Floats x) { std::memcpy(to, &x, count >= LANES ? sizeof x : count * sizeof(float)); }

// The upper half of a float.
struct Bfloat16 {
    uint16_t bits;
};
typedef uint16_t Halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

inline Floats load(const Bfloat16* from, int64_t count, float rest) {
    Halves x = __builtin_convertvector(bits(splat(rest)) >> 16, Halves);
    std::memcpy(&x, from, count >= LANES ? sizeof x : count * sizeof(Bfloat16));
    return bits(__builtin_convertvector(x, Ints) << 16);
}

// Rounds to nearest, ties to even.
inline void store(Bfloat16* to, int64_t count, Floats x) {
    const Ints rounded = bits(x) + 0x7fff + ((bits(x) >> 16) & 1);
    const Halves half = __builtin_convertvector((x != x ? bits(x) | 0x400000 : rounded) >> 16, Halves);
    std::memcpy(to, &half, count >= LANES ? sizeof half : count * sizeof(Bfloat16));
}

// x = n ln 2 + r with |r| <= ln 2 / 2; expm1(r) as a polynomial. x must lie in [-104, 88].
struct Exponent {
    Ints n;
    Floats fraction;  // e^r - 1
};

inline Exponent split(Floats x) {
    const float shift = 0x1.8p23f;
    Floats rounded = x * 0x1.715476p0f + shift;
    Ints n = bits(rounded) - bits(splat(shift));
    rounded -= shift;
    Floats r = x - rounded * 0x1.62e4p-1f;  // ln 2 in two parts; the first product is exact
    r -= rounded * 0x1.7f7d1cp-20f;
    Floats tail = splat(1.0f / 5040);
    tail = tail * r + 1.0f / 720;
    tail = tail * r + 1.0f / 120;
    tail = tail * r + 1.0f / 24;
    tail = tail * r + 1.0f / 6;
    tail = tail * r + 0.5f;
    return {n, tail * (r * r) + r};
}

inline Floats power_of_two(Ints n) { return bits((n + 127) << 23); }

// e^x, 1 to 2 u; below -104 it is 0, above 88 it is e^88.
inline Floats exp(Floats x) {
    Exponent e = split(at_most(at_least(x, -104), 88));
    Ints half = e.n >> 1;  // in two steps, so that subnormal results come out right
    return (e.fraction + 1) * power_of_two(half) * power_of_two(e.n - half);
}

// expm1(x) and e^x for x in [-88, 88].
inline void exp_both(Floats x, Floats& minus_one, Floats& whole) {
    Exponent e = split(x);
    Floats scale = power_of_two(e.n);
    Floats scaled = e.fraction * scale;
    minus_one = (scale - 1) + scaled;
    whole = scale + scaled;
}

// log z for a positive normal z, where z - 1 is also known, more exactly than by subtraction: relative error about 2 u.
inline Floats log(Floats z, Floats minus_one) {
    Ints n = (bits(z) - 0x3f3504f3) >> 23;  // mantissa from sqrt(1/2) to sqrt(2)
    Floats f = n == 0 ? minus_one : bits(bits(z) - (n << 23)) - 1;
    Floats s = f / (f + 2), square = s * s;
    Floats tail = splat(2.0f / 11);
    tail = tail * square + 2.0f / 9;
    tail = tail * square + 2.0f / 7;
    tail = tail * square + 2.0f / 5;
    tail = tail * square + 2.0f / 3;
    // log1p(f) = 2 s + s^3 tail = f - s (f - s^2 tail): the leading term is exact
    Floats logarithm = f - s * (f - square * tail);
    Floats count = __builtin_convertvector(n, Floats);
    logarithm = count * 0x1.7f7d1cp-20f + logarithm + count * 0x1.62e4p-1f;
    return z != z ? z : logarithm;
}

// A sum in fp32 lanes over few terms, then in fp64: its rounding does not grow with the vocabulary.
struct Sum {
    Floats lanes{};
    double total = 0;

    void flush() {
        for (int i = 0; i < LANES; i++) total += lanes[i];
        lanes = Floats{};
    }
};
