// The passes over rows of fp32 logits between two GEMMs: one row at a time, from cache after its first sweep; threads share the rows.
// Plain C interface, no PyTorch headers: it compiles in seconds and binds to no version. Mathematics: linear_jsd/divergences.py.

#include <algorithm>
#include <cmath>

#include "threads.h"
#include "vector.h"

namespace {

constexpr int64_t BLOCK = 64 * LANES;  // terms between two flushes of the sums
constexpr float CUT = INF;             // the score of an entry that the clip cut
constexpr float LARGEST_GAP = 88;      // as in divergences.py
constexpr double LOWEST_CENTRE = -64;  // as there
constexpr float FAR_APART = 2;         // largest logits: t - s is then rounded more coarsely than either logit less its largest

// body(offset, number of entries left) for each vector of a row; after each block the sums are flushed.
template <class Body, class... Sums>
void sweep(int64_t vocabulary, Body body, Sums&... sums) {
    for (int64_t start = 0; start < vocabulary; start += BLOCK) {
        const int64_t stop = std::min(start + BLOCK, vocabulary);
        for (int64_t i = start; i < stop; i += LANES) body(i, vocabulary - i);
        (sums.flush(), ...);
    }
}

// A row's distribution: probability exp((logit - largest) / temperature) / total.
struct Softmax {
    const float* logits;
    float largest, inverse_temperature, inverse_total = 0;
    double log_total = 0, entropy = 0;

    Floats scaled(Floats logit) const { return at_least((logit - largest) * inverse_temperature, -104); }
    Floats probability(Floats logit) const { return exp(scaled(logit)) * inverse_total; }
    void finish(double total, double moment) {
        log_total = std::log(total);
        inverse_total = float(1 / total);
        entropy = log_total - moment / total;
    }
};

float row_max(const float* logits, int64_t vocabulary) {
    Floats lanes = splat(-INF);
    sweep(vocabulary, [&](int64_t i, int64_t left) {
        Floats x = load(logits + i, left, -INF);
        lanes = x > lanes ? x : lanes;
    });
    float largest = -INF;
    for (int i = 0; i < LANES; i++) largest = std::max(largest, lanes[i]);
    return largest;
}

struct Jsd {
    int64_t vocabulary;
    double beta;
    float inverse_temperature, clip;
    bool clipped, gradient;
};

// f, and its derivative by the student's log-prob over q, less the formula's constant (at beta = 0 the derivative itself).
struct Entries {
    Floats value, score;
};

// What beta and a row fix: K = m/q at the row's mean log ratio, and the constants that follow from it.
struct Mixture {
    float beta, rest, centre_minus_one, centre_whole, inverse_scale, log_scale;

    Mixture(double beta, double centre) : beta(beta), rest(1 - beta) {
        const double minus_one = std::expm1(centre), scale = 1 + beta * minus_one;
        centre_minus_one = minus_one, centre_whole = minus_one + 1;
        inverse_scale = 1 / scale, log_scale = std::log1p(beta * minus_one);
    }

    float constant() const { return -log_scale * rest; }
    Entries operator()(Floats gap, Floats q, Floats p, bool) const {
        gap = at_most(at_least(gap, -LARGEST_GAP), LARGEST_GAP);
        Floats minus_one, whole;
        exp_both(gap, minus_one, whole);
        const Floats mixture = whole * beta + rest;  // m / q
        const Floats difference = gap > -0.7f ? minus_one - centre_minus_one : whole - centre_whole;
        const Floats relative = -log(mixture * inverse_scale, difference * (beta * inverse_scale));
        const Floats student = relative - log_scale;  // log(q/m)
        const Floats teacher = beta <= 0.5f ? gap + student : -log(mixture / whole, minus_one / whole * -rest);  // log(p/m)
        return {p * teacher * beta + q * student * rest, relative * rest};
    }
};

template <bool reverse>
struct Endpoint {
    float centre;  // the row's mean log ratio: scores of the reverse divergence are relative to it

    float constant() const { return reverse ? 1 - centre : 0; }
    Entries operator()(Floats gap, Floats q, Floats p, bool clipped) const {
        Floats minus_one, whole;
        exp_both(at_most(at_least(gap, -LARGEST_GAP), LARGEST_GAP), minus_one, whole);
        const Floats excess = (gap > -1) & (gap < 1) ? -q * minus_one : q - p;  // q - p; it balances the sum of an unclipped token
        const Floats product = (reverse ? q : p) == 0 ? Floats{} : gap * (reverse ? -q : p);
        const Floats value = clipped ? product : reverse ? product - excess : product + excess;
        if (reverse) return {value, q == 0 ? Floats{} : centre - gap};
        return {value, clipped ? -p : excess};
    }
};

struct Row {
    float *student, *teacher, *divergence, *entropy, *teacher_entropy;
    bool* top1_agree;
    int64_t* clipped;
};

template <class Formula>
void jsd_row(const Jsd& options, const Row& row, const Softmax& student, const Softmax& teacher, Formula formula) {
    const int64_t vocabulary = options.vocabulary;
    // log p - log q = ((t - t_base) - (s - s_base) - apart) / temperature + offset, where the bracket is 0 if both are largest. Without bases t - s is
    // exact where t and s nearly agree; where the rows lie far apart, the differences that the softmax rests on are the more exact ones.
    const double exactly_apart = double(teacher.largest) - student.largest;
    const bool far = std::fabs(exactly_apart) > FAR_APART && std::fabs(exactly_apart) < INF;
    const float s_base = far ? student.largest : 0, t_base = far ? teacher.largest : 0, apart = far ? 0 : exactly_apart;
    const float offset = (far ? 0 : apart - exactly_apart) * options.inverse_temperature + student.log_total - teacher.log_total;
    const bool forward = options.beta == 0;  // there, scores are derivatives
    Sum value, derivative, kept_mass, cut_mass;
    int64_t cut_entries = 0;
    sweep(vocabulary, [&](int64_t i, int64_t left) {
        const Floats s = load(row.student + i, left, -INF), t = load(row.teacher + i, left, -INF);
        const Floats q = student.probability(s), p = teacher.probability(t);
        const Floats below_s = s - s_base, below_t = t - t_base;
        const Floats difference = below_s == below_t ? Floats{} : below_t - below_s;  // equal infinities: 0
        const Floats gap = (difference - apart) * options.inverse_temperature + offset;
        Entries entries = formula(gap, q, p, options.clipped);
        Floats kept = q;
        if (options.clipped) {
            const Ints cut = entries.value > options.clip;
            entries.value = cut ? splat(options.clip) : entries.value;
            entries.score = cut ? Floats{} : entries.score;
            kept = cut ? Floats{} : q;
            cut_mass.lanes += q - kept;
            for (int lane = 0; lane < LANES; lane++) cut_entries -= cut[lane];
            if (options.gradient) store(row.teacher + i, left, cut ? splat(CUT) : entries.score);
        } else if (options.gradient) {
            store(row.teacher + i, left, entries.score);
        }
        value.lanes += entries.value;
        derivative.lanes += forward ? entries.score : entries.score * q;
        kept_mass.lanes += kept;
    }, value, derivative, kept_mass, cut_mass);
    *row.divergence = value.total;
    *row.clipped = cut_entries;
    if (!options.gradient) return;
    // Over the rounded mass, so that the gradient sums to 0. The constant, which cut entries lack, enters by the mass of the other side alone.
    const double mass = kept_mass.total + cut_mass.total, constant = formula.constant();
    const float kept_mean = (derivative.total - constant * cut_mass.total) / mass, cut_mean = (derivative.total + constant * kept_mass.total) / mass;
    sweep(vocabulary, [&](int64_t i, int64_t left) {
        const Floats q = student.probability(load(row.student + i, left, -INF)), score = load(row.teacher + i, left, 0);
        const Floats kept = forward ? score - q * kept_mean : q * (score - kept_mean);
        store(row.student + i, left, score == CUT ? -q * cut_mean : kept);
    });
}

void jsd_row(const Jsd& options, const Row& row) {
    const int64_t vocabulary = options.vocabulary;
    Softmax student{row.student, row_max(row.student, vocabulary), options.inverse_temperature};
    Softmax teacher{row.teacher, row_max(row.teacher, vocabulary), options.inverse_temperature};
    Sum total, moment, teacher_total, teacher_moment, ratio;
    sweep(vocabulary, [&](int64_t i, int64_t left) {
        const Floats x = student.scaled(load(row.student + i, left, -INF)), y = teacher.scaled(load(row.teacher + i, left, -INF));
        const Floats e = exp(x), f = exp(y);
        total.lanes += e;
        moment.lanes += e * x;
        ratio.lanes += e * (y - x);
        teacher_total.lanes += f;
        teacher_moment.lanes += f * y;
    }, total, moment, ratio, teacher_total, teacher_moment);
    student.finish(total.total, moment.total);
    teacher.finish(teacher_total.total, teacher_moment.total);
    *row.entropy = student.entropy;
    *row.teacher_entropy = teacher.entropy;
    const float* top = std::find(row.teacher, row.teacher + vocabulary, teacher.largest);
    *row.top1_agree = top < row.teacher + vocabulary && row.student[top - row.teacher] == student.largest;

    const double mean_ratio = ratio.total / total.total + student.log_total - teacher.log_total;
    if (options.beta == 0) {
        jsd_row(options, row, student, teacher, Endpoint<false>{});
    } else if (options.beta == 1) {
        jsd_row(options, row, student, teacher, Endpoint<true>{float(std::max(mean_ratio, -1e4))});  // finite, for a teacher of -inf
    } else {
        jsd_row(options, row, student, teacher, Mixture(options.beta, std::max(mean_ratio, LOWEST_CENTRE)));
    }
}

}  // namespace

// student, teacher [rows, vocabulary]: overwritten; with gradient, student becomes temperature * dD/d(raw logit). clip: NaN for none.
// The other pointers: [rows], see JsdOutput.
extern "C" void papergym_jsd(float* student, float* teacher, int64_t rows, int64_t vocabulary, double beta, double temperature, double clip,
                             bool gradient, int threads, float* divergence, float* entropy, float* teacher_entropy, bool* top1_agree,
                             int64_t* clipped) {
    const Jsd options{vocabulary, beta, float(1 / temperature), float(clip), clip == clip, gradient};
    parallel_rows(rows, threads, [&](int64_t i) {
        jsd_row(options, Row{student + i * vocabulary, teacher + i * vocabulary, divergence + i, entropy + i, teacher_entropy + i,
                             top1_agree + i, clipped + i});
    });
}

// Adds columns to the statistics of rows that began as largest = -inf, total = moment = 0: with x = (logit - largest) / temperature over the
// columns so far, total is the sum of exp(x) and moment that of x exp(x).
extern "C" void papergym_logprob(const float* logits, int64_t rows, int64_t columns, double temperature, int threads, float* largest,
                                 double* total, double* moment) {
    parallel_rows(rows, threads, [&](int64_t i) {
        const float* values = logits + i * columns;
        const float before = largest[i];
        const Softmax row{values, std::max(before, row_max(values, columns)), float(1 / temperature)};
        if (row.largest == -INF) return;
        Sum sum, weighted;
        sweep(columns, [&](int64_t j, int64_t left) {
            Floats x = row.scaled(load(values + j, left, -INF)), e = exp(x);
            sum.lanes += e;
            weighted.lanes += e * x;
        }, sum, weighted);
        if (before > -INF) {
            const double shift = (double(before) - row.largest) / temperature, decay = std::exp(shift);
            sum.total += decay * total[i];
            weighted.total += decay * (moment[i] + shift * total[i]);
        }
        largest[i] = row.largest, total[i] = sum.total, moment[i] = weighted.total;
    });
}

// Overwrites logits by -q (a + b (log q + entropy)): the gradient of a logprob + b entropy with respect to logits / temperature, but for the target.
extern "C" void papergym_logprob_gradient(float* logits, int64_t rows, int64_t columns, double temperature, int threads,
                                          const float* largest, const double* total, const float* entropy, const float* a, const float* b) {
    parallel_rows(rows, threads, [&](int64_t i) {
        float* values = logits + i * columns;
        const Softmax row{values, largest[i], float(1 / temperature), float(1 / total[i])};
        const float constant = entropy[i] - std::log(total[i]);
        sweep(columns, [&](int64_t j, int64_t left) {
            const Floats x = row.scaled(load(values + j, left, -INF));
            store(values + j, left, exp(x) * row.inverse_total * ((x + constant) * -b[i] - a[i]));
        });
    });
}
