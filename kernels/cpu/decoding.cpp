// What a decoding step on a CPU is made of, for few rows: products with a matrix that is read once, norms, attention to a
// sampler's cache, and the draw.
// T is float or Bfloat16: what is stored. All sums are fp32.

#include <algorithm>
#include <cmath>
#include <vector>

#include "threads.h"
#include "vector.h"

namespace {

constexpr int64_t OUTPUTS = 2 * LANES;  // of one block of a packed matrix
constexpr int64_t TERMS = 256;          // of a product, summed before they are added to the others: keeps the rounding of long sums small
#ifdef __AVX512F__
constexpr int ROWS = 8;  // rows whose sums stay in registers: of 32
#else
constexpr int ROWS = 6;  // of 16, as AVX2 has
#endif

// A block holds the weights [inputs, OUTPUTS] of as many outputs. In bf16 lane i holds, as two halves of 32 bits, outputs i and LANES + i.
inline void load_weights(const float* from, Floats& low, Floats& high) { low = load(from, LANES, 0), high = load(from + LANES, LANES, 0); }
inline void load_weights(const Bfloat16* from, Floats& low, Floats& high) {
    Ints pairs;
    std::memcpy(&pairs, from, sizeof pairs);
    low = bits(pairs << 16), high = bits(pairs & int32_t(0xffff0000));
}

template <int rows, class T>
void multiply(const T* block, const float* x, int64_t inputs, const float* bias, T* out, int64_t outputs, int64_t left) {
    Floats total[2 * rows];
    for (int r = 0; r < rows; r++) {
        total[2 * r] = bias ? load(bias, left, 0) : Floats{};
        total[2 * r + 1] = bias && left > LANES ? load(bias + LANES, left - LANES, 0) : Floats{};
    }
    for (int64_t start = 0; start < inputs; start += TERMS) {
        Floats low[rows]{}, high[rows]{};
        for (int64_t i = start; i < std::min(start + TERMS, inputs); i++) {
            Floats first, second;
            load_weights(block + i * OUTPUTS, first, second);
            for (int r = 0; r < rows; r++) {
                low[r] += first * x[r * inputs + i];
                high[r] += second * x[r * inputs + i];
            }
        }
        for (int r = 0; r < rows; r++) total[2 * r] += low[r], total[2 * r + 1] += high[r];
    }
    for (int r = 0; r < rows; r++) {
        store(out + r * outputs, left, total[2 * r]);
        if (left > LANES) store(out + r * outputs + LANES, left - LANES, total[2 * r + 1]);
    }
}

template <int rows, class T, class... Rest>
void multiply_up_to(int64_t count, Rest... rest) {
    if (count == rows) return multiply<rows, T>(rest...);
    if constexpr (rows > 1) multiply_up_to<rows - 1, T>(count, rest...);
}

template <class T>
void product(const T* packed, const float* x, int64_t rows, int64_t inputs, int64_t outputs, const float* bias, T* out, int threads) {
    parallel_rows((outputs + OUTPUTS - 1) / OUTPUTS, threads, [&](int64_t index) {
        const int64_t first = index * OUTPUTS;
        for (int64_t row = 0; row < rows; row += ROWS) {
            multiply_up_to<ROWS, T>(std::min<int64_t>(ROWS, rows - row), packed + first * inputs, x + row * inputs, inputs,
                                    bias ? bias + first : nullptr, out + row * outputs + first, outputs, outputs - first);
        }
    });
}

template <class T>
void rms_norm(const T* x, const T* weight, int64_t rows, int64_t width, double eps, T* out) {
    for (int64_t row = 0; row < rows; row++, x += width, out += width) {
        Sum squares;
        for (int64_t i = 0; i < width; i += LANES) {
            const Floats value = load(x + i, width - i, 0);
            squares.lanes += value * value;
        }
        squares.flush();
        const float factor = float(1 / std::sqrt(squares.total / double(width) + eps));
        for (int64_t i = 0; i < width; i += LANES) store(out + i, width - i, load(x + i, width - i, 0) * factor * load(weight + i, width - i, 0));
    }
}

// Draws a token from softmax(logits / temperature): the first entry at which the running sum exceeds uniform · total, found by the sums of blocks.
template <class T>
void draw(const T* logits, int64_t vocabulary, float inverse_temperature, double uniform, int64_t& id, float& logprob) {
    constexpr int64_t BLOCK = 16 * LANES;
    Floats lanes = splat(-INF);
    for (int64_t i = 0; i < vocabulary; i += LANES) {
        const Floats x = load(logits + i, vocabulary - i, -INF);
        lanes = x > lanes ? x : lanes;
    }
    float largest = -INF;
    for (int i = 0; i < LANES; i++) largest = std::max(largest, lanes[i]);
    auto weights = [&](int64_t i) { return exp((load(logits + i, vocabulary - i, -INF) - largest) * inverse_temperature); };

    std::vector<double> sums;
    double total = 0;
    for (int64_t start = 0; start < vocabulary; start += BLOCK) {
        Sum sum;
        for (int64_t i = start; i < std::min(start + BLOCK, vocabulary); i += LANES) sum.lanes += weights(i);
        sum.flush();
        sums.push_back(sum.total);
        total += sum.total;
    }
    // What is too small to raise a running sum can't be drawn, however the sums are rounded.
    const double target = uniform * total;
    double running = 0, before = 0;
    size_t block = 0;
    for (size_t i = 0; i < sums.size() && !(target < running); i++) {
        if (running + sums[i] > running) block = i, before = running;
        running += sums[i];
    }
    float inside[BLOCK];
    const int64_t start = block * BLOCK, count = std::min(BLOCK, vocabulary - start);
    double mass = 0;
    for (int64_t i = 0; i < count; i += LANES) store(inside + i, LANES, weights(start + i));
    for (int64_t i = 0; i < count; i++) mass += inside[i];
    const double rest = (target - before) * (mass / sums[block]);
    id = start, running = 0;
    for (int64_t i = 0; i < count && !(rest < running); i++) {
        if (running + inside[i] > running) id = start + i;
        running += inside[i];
    }
    logprob = (float(load(logits + id, 1, 0)[0]) - largest) * inverse_temperature - float(std::log(total));
}

float sum_of(Floats x) {
    typedef float Four __attribute__((vector_size(4 * sizeof(float))));
    Four parts[LANES / 4];
    std::memcpy(parts, &x, sizeof x);
    for (int count = LANES / 8; count > 0; count /= 2) {
        for (int i = 0; i < count; i++) parts[i] += parts[count + i];
    }
    return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}

// Sizes of a call: R rows, G groups, h key heads, N places of a group, r queries a key head, D head_dim, P columns of prompts, W columns of own keys
// in use, of `allocated`.
struct Sizes {
    int64_t rows, groups, heads, places, shared, dim, prompt, width, allocated;
};

constexpr int64_t KEYS = 64;  // widened to fp32 at once

// One group's queries of one key head: [Q, D], with room for Q · (P + W) scores.
struct Queries {
    int64_t dim, stride, padded;
    std::vector<float> queries, scores, sums, block;
    std::vector<int64_t> counts;  // scores of each query so far

    Queries(int64_t count, int64_t dim, int64_t stride)
        : dim(dim), stride(stride), padded((dim + LANES - 1) / LANES * LANES), queries(count * padded), scores(count * stride), sums(count * padded), block(KEYS * padded), counts(count) {}

    // body(keys or values of a block in fp32 [n, padded], n, the first one's index)
    template <class T, class Body>
    void widened(const T* rows, int64_t count, Body body) {
        for (int64_t first = 0; first < count; first += KEYS) {
            const int64_t n = std::min(KEYS, count - first);
            for (int64_t k = 0; k < n; k++) {
                for (int64_t d = 0; d < dim; d += LANES) store(&block[k * padded + d], LANES, load(rows + (first + k) * dim + d, dim - d, 0));
            }
            body(n, first);
        }
    }

    template <class T>
    void score(const T* keys, int64_t count, int64_t from, int64_t to) {
        widened(keys, count, [&](int64_t n, int64_t) {
            for (int64_t q = from; q < to; q++) {
                float* into = &scores[q * stride + counts[q]];
                for (int64_t k = 0; k < n; k++) {
                    Floats sum{};
                    for (int64_t d = 0; d < padded; d += LANES) sum += load(&queries[q * padded + d], LANES, 0) * load(&block[k * padded + d], LANES, 0);
                    into[k] = sum_of(sum);
                }
                counts[q] += n;
            }
        });
    }

    // Scores become weights that sum to 1.
    void softmax() {
        for (size_t q = 0; q < counts.size(); q++) {
            float* row = &scores[q * stride];
            const float largest = *std::max_element(row, row + counts[q]);
            Sum total;
            for (int64_t k = 0; k < counts[q]; k += LANES) {
                const Floats weight = exp(load(row + k, counts[q] - k, -INF) - largest);
                store(row + k, counts[q] - k, weight);
                total.lanes += weight;
            }
            total.flush();
            for (int64_t k = 0; k < counts[q]; k++) row[k] *= float(1 / total.total);
        }
    }

    // Adds weight · value; the weights used are those from `offset` on.
    template <class T>
    void weigh(const T* values, int64_t count, int64_t from, int64_t to, int64_t offset) {
        widened(values, count, [&](int64_t n, int64_t first) {
            for (int64_t q = from; q < to; q++) {
                const float* weights = &scores[q * stride + offset + first];
                for (int64_t d = 0; d < padded; d += LANES) {
                    Floats sum = load(&sums[q * padded + d], LANES, 0);
                    for (int64_t k = 0; k < n; k++) sum += load(&block[k * padded + d], LANES, 0) * weights[k];
                    store(&sums[q * padded + d], LANES, sum);
                }
            }
        });
    }
};

template <class T>
void attend(const Sizes& z, const int64_t* row_places, const int64_t* lengths, const int64_t* starts, const T* query, const T* key, const T* value,
            const T* prompt_keys, const T* prompt_values, T* keys, T* values, T* out, int threads) {
    parallel_rows(z.groups * z.heads, threads, [&](int64_t task) {
        const int64_t group = task / z.heads, head = task % z.heads, length = lengths[group];
        const int64_t first = std::lower_bound(row_places, row_places + z.rows, group * z.places) - row_places;
        const int64_t last = std::lower_bound(row_places, row_places + z.rows, (group + 1) * z.places) - row_places;
        const int64_t count = (last - first) * z.shared;
        const float scale = float(1 / std::sqrt(double(z.dim)));
        Queries all(count, z.dim, z.prompt + z.width);
        auto own = [&](int64_t row, int64_t column) { return ((task * z.places + row_places[row] % z.places) * z.allocated + column) * z.dim; };
        for (int64_t row = first; row < last; row++) {
            const int64_t newest = own(row, z.width - 1), source = (row * z.heads + head) * z.dim;
            std::copy_n(key + source, z.dim, keys + newest);
            std::copy_n(value + source, z.dim, values + newest);
            for (int64_t q = 0; q < z.shared; q++) {
                const T* from = query + (source * z.shared) + q * z.dim;
                float* to = &all.queries[((row - first) * z.shared + q) * all.padded];
                for (int64_t d = 0; d < z.dim; d += LANES) store(to + d, LANES, load(from + d, z.dim - d, 0) * scale);
            }
        }
        const int64_t prompt = task * z.prompt * z.dim;
        all.score(prompt_keys + prompt, length, 0, count);
        for (int64_t row = first; row < last; row++) {
            const int64_t start = starts[row_places[row]], q = (row - first) * z.shared;
            all.score(keys + own(row, start), z.width - start, q, q + z.shared);
        }
        all.softmax();
        all.weigh(prompt_values + prompt, length, 0, count, 0);
        for (int64_t row = first; row < last; row++) {
            const int64_t start = starts[row_places[row]], q = (row - first) * z.shared;
            all.weigh(values + own(row, start), z.width - start, q, q + z.shared, length);
            for (int64_t i = 0; i < z.shared; i++) {
                T* to = out + ((row * z.heads + head) * z.shared + i) * z.dim;
                for (int64_t d = 0; d < z.dim; d += LANES) store(to + d, z.dim - d, load(&all.sums[(q + i) * all.padded + d], LANES, 0));
            }
        }
    });
}

}  // namespace

#define PAPERGYM_DECODING(T, name)                                                                                                                    \
    extern "C" void papergym_product_##name(const T* packed, const float* x, int64_t rows, int64_t inputs, int64_t outputs, const float* bias,       \
                                            T* out, int threads) {                                                                                   \
        product(packed, x, rows, inputs, outputs, bias, out, threads);                                                                               \
    }                                                                                                                                                \
    extern "C" void papergym_rms_norm_##name(const T* x, const T* weight, int64_t rows, int64_t width, double eps, T* out) {                         \
        rms_norm(x, weight, rows, width, eps, out);                                                                                                  \
    }                                                                                                                                                \
    extern "C" void papergym_draw_##name(const T* logits, int64_t rows, int64_t vocabulary, double temperature, const double* uniforms, int64_t* ids,  \
                                         float* logprobs, int threads) {                                                                             \
        const float inverse = float(std::min(std::max(1 / temperature, 1e-37), 1e37)); /* times an infinity, or 0, it is no NaN */                    \
        parallel_rows(rows, threads, [&](int64_t i) {                                                                                                \
            draw(logits + i * vocabulary, vocabulary, inverse, uniforms[i], ids[i], logprobs[i]);                                     \
        });                                                                                                                                          \
    }                                                                                                                                                \
    extern "C" void papergym_attend_##name(const Sizes* sizes, const int64_t* places, const int64_t* lengths, const int64_t* starts, const T* query, \
                                           const T* key, const T* value, const T* prompt_keys, const T* prompt_values, T* keys, T* values, T* out,   \
                                           int threads) {                                                                                            \
        attend(*sizes, places, lengths, starts, query, key, value, prompt_keys, prompt_values, keys, values, out, threads);                          \
    }

PAPERGYM_DECODING(float, float32)
PAPERGYM_DECODING(Bfloat16, bfloat16)

extern "C" int64_t papergym_packed_outputs() { return OUTPUTS; }
