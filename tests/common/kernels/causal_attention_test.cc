#include "common/kernels/causal_attention.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using Numbers = std::vector<double>;

// Holds a sequence with its results and gradients; a token's heads are side by
// side.
struct Case {
  AttentionHeads heads;
  int64_t queries;
  int64_t keys;
  std::vector<float> q, k, v, grad_out;
  std::vector<float> out, logsumexp, grad_q, grad_k, grad_v;

  Case(const AttentionHeads& h, int64_t num_queries, int64_t num_keys)
      : heads(h), queries(num_queries), keys(num_keys) {
    std::mt19937 random(static_cast<unsigned>(queries * 31 + keys));
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, int64_t size) {
      values.resize(static_cast<size_t>(size));
      for (float& value : values) value = normal(random);
    };
    fill(q, queries * heads.query * heads.dim);
    fill(k, keys * heads.key_value * heads.dim);
    fill(v, keys * heads.key_value * heads.dim);
    fill(grad_out, queries * heads.query * heads.dim);
    // The kernel must overwrite these values.
    out.assign(q.size(), NAN);
    grad_q.assign(q.size(), NAN);
    grad_k.assign(k.size(), NAN);
    grad_v.assign(v.size(), NAN);
    logsumexp.assign(static_cast<size_t>(queries * heads.query), NAN);
  }

  template <typename T>
  HeadMatrix<T> Queries(T* data) const {
    return {data, heads.query * heads.dim, heads.dim};
  }
  template <typename T>
  HeadMatrix<T> Keys(T* data) const {
    return {data, heads.key_value * heads.dim, heads.dim};
  }

  AttentionSequence Sequence() {
    return {queries,
            keys,
            Queries<const float>(q.data()),
            Keys<const float>(k.data()),
            Keys<const float>(v.data()),
            Queries<float>(out.data()),
            logsumexp.data()};
  }

  AttentionSequenceGradients Gradients() {
    return {Queries<const float>(grad_out.data()),
            Queries<float>(grad_q.data()),
            Keys<float>(grad_k.data()),
            Keys<float>(grad_v.data())};
  }
};

void Compute(std::vector<Case*> cases, int num_threads) {
  std::vector<AttentionSequence> sequences;
  std::vector<AttentionSequenceGradients> gradients;
  for (Case* one : cases) {
    sequences.push_back(one->Sequence());
    gradients.push_back(one->Gradients());
  }
  CausalAttention(num_threads, cases[0]->heads, sequences);
  CausalAttentionBackward(num_threads, cases[0]->heads, sequences, gradients);
}

// Computes the definition and its gradients in double precision.
struct Expected {
  Numbers out, grad_q, grad_k, grad_v;

  explicit Expected(const Case& c)
      : out(c.q.size()),
        grad_q(c.q.size()),
        grad_k(c.k.size()),
        grad_v(c.v.size()) {
    for (int64_t t = 0; t < c.queries; ++t) {
      for (int64_t h = 0; h < c.heads.query; ++h) AddHead(c, t, h);
    }
  }

  void AddHead(const Case& c, int64_t t, int64_t h) {
    const int64_t dim = c.heads.dim;
    const int64_t kv = h / (c.heads.query / c.heads.key_value);
    const size_t q_at = static_cast<size_t>((t * c.heads.query + h) * dim);
    const auto kv_at = [&](int64_t key) {
      return static_cast<size_t>((key * c.heads.key_value + kv) * dim);
    };
    const int64_t visible = c.keys - c.queries + t + 1;
    const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
    Numbers p(static_cast<size_t>(visible));
    double sum = 0.0;
    for (int64_t key = 0; key < visible; ++key) {
      double score = 0.0;
      for (int64_t i = 0; i < dim; ++i) {
        score += static_cast<double>(c.q[q_at + i]) * c.k[kv_at(key) + i];
      }
      p[key] = std::exp(score * scale);
      sum += p[key];
    }
    Numbers grad_p(p.size());
    double mean = 0.0;
    for (int64_t key = 0; key < visible; ++key) {
      p[key] /= sum;
      for (int64_t i = 0; i < dim; ++i) {
        out[q_at + i] += p[key] * c.v[kv_at(key) + i];
        grad_p[key] +=
            static_cast<double>(c.grad_out[q_at + i]) * c.v[kv_at(key) + i];
        grad_v[kv_at(key) + i] += p[key] * c.grad_out[q_at + i];
      }
      mean += p[key] * grad_p[key];
    }
    for (int64_t key = 0; key < visible; ++key) {
      const double grad_score = p[key] * (grad_p[key] - mean) * scale;
      for (int64_t i = 0; i < dim; ++i) {
        grad_q[q_at + i] += grad_score * c.k[kv_at(key) + i];
        grad_k[kv_at(key) + i] += grad_score * c.q[q_at + i];
      }
    }
  }
};

double WorstError(const std::vector<float>& found, const Numbers& expected) {
  double worst = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(found[i] - expected[i]);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

TEST(CausalAttentionTest, AgreesWithTheDefinitionInDoublePrecision) {
  for (const AttentionHeads& heads : {AttentionHeads{1, 1, 16},
                                      AttentionHeads{4, 2, 32},
                                      AttentionHeads{6, 2, 20},
                                      AttentionHeads{8, 1, 128}}) {
    for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {5, 5}, {64, 64}, {150, 150}, {1, 90}, {70, 200}}) {
      Case c(heads, queries, keys);
      Compute({&c}, 2);
      const Expected expected(c);
      const double errors[] = {WorstError(c.out, expected.out),
                               WorstError(c.grad_q, expected.grad_q),
                               WorstError(c.grad_k, expected.grad_k),
                               WorstError(c.grad_v, expected.grad_v)};
      const std::string name = absl::StrCat(heads.query,
                                            "/",
                                            heads.key_value,
                                            " heads of ",
                                            heads.dim,
                                            ", ",
                                            queries,
                                            " of ",
                                            keys,
                                            " tokens");
      std::cout << name << ": out " << errors[0] << ", gradients "
                << *std::max_element(errors + 1, errors + 4) << "\n";
      for (const double error : errors) EXPECT_LT(error, 2e-5) << name;
    }
  }
}

// Bounds what roundings to bfloat16 may change in each number of Expected. The
// largest relative error of a rounding is 2^-8. A probability is rounded once
// for the product with v, a score's gradient once for the product with k, and
// every result once. Inputs are exact.
struct Bounds {
  static constexpr double kRounding = 1.0 / 256;
  Numbers out, grad_q, grad_k, grad_v;

  Bounds(const Case& c, const Expected& expected)
      : out(c.q.size()),
        grad_q(c.q.size()),
        grad_k(c.k.size()),
        grad_v(c.v.size()) {
    for (int64_t t = 0; t < c.queries; ++t) {
      for (int64_t h = 0; h < c.heads.query; ++h) AddHead(c, expected, t, h);
    }
    const auto add_rounding = [](const Numbers& values, Numbers* bounds) {
      for (size_t i = 0; i < values.size(); ++i) {
        // Adds the rounding of a result that may already be off by its bound.
        (*bounds)[i] += kRounding * (std::abs(values[i]) + (*bounds)[i]);
      }
    };
    add_rounding(expected.grad_q, &grad_q);
    add_rounding(expected.grad_k, &grad_k);
    add_rounding(expected.grad_v, &grad_v);
  }

  void AddHead(const Case& c, const Expected& expected, int64_t t, int64_t h) {
    const int64_t dim = c.heads.dim;
    const int64_t kv = h / (c.heads.query / c.heads.key_value);
    const size_t q_at = static_cast<size_t>((t * c.heads.query + h) * dim);
    const auto kv_at = [&](int64_t key) {
      return static_cast<size_t>((key * c.heads.key_value + kv) * dim);
    };
    const int64_t visible = c.keys - c.queries + t + 1;
    const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
    Numbers p(static_cast<size_t>(visible));
    Numbers grad_p(p.size());
    double sum = 0.0;
    for (int64_t key = 0; key < visible; ++key) {
      double score = 0.0;
      for (int64_t i = 0; i < dim; ++i) {
        score += static_cast<double>(c.q[q_at + i]) * c.k[kv_at(key) + i];
        grad_p[key] +=
            static_cast<double>(c.grad_out[q_at + i]) * c.v[kv_at(key) + i];
      }
      p[key] = std::exp(score * scale);
      sum += p[key];
    }
    double mean = 0.0;
    for (int64_t key = 0; key < visible; ++key) {
      p[key] /= sum;
      mean += p[key] * grad_p[key];
      for (int64_t i = 0; i < dim; ++i) {
        out[q_at + i] += kRounding * p[key] * std::abs(c.v[kv_at(key) + i]);
      }
    }
    for (int64_t i = 0; i < dim; ++i) {
      double& bound = out[q_at + i];
      bound += kRounding * (std::abs(expected.out[q_at + i]) + bound);
    }
    for (int64_t key = 0; key < visible; ++key) {
      const double grad_score = std::abs(p[key] * (grad_p[key] - mean) * scale);
      for (int64_t i = 0; i < dim; ++i) {
        grad_q[q_at + i] +=
            kRounding * grad_score * std::abs(c.k[kv_at(key) + i]);
      }
    }
  }
};

// Holds the heads of a Case in bfloat16.
struct HalfCase {
  std::vector<BFloat16> q, k, v, grad_out, out, grad_q, grad_k, grad_v;
  std::vector<float> logsumexp;

  explicit HalfCase(const Case& c)
      : q(Halves(c.q)),
        k(Halves(c.k)),
        v(Halves(c.v)),
        grad_out(Halves(c.grad_out)),
        out(q.size()),
        grad_q(q.size()),
        grad_k(k.size()),
        grad_v(v.size()),
        logsumexp(c.logsumexp) {
    const HalfAttentionSequence sequence = {c.queries,
                                            c.keys,
                                            c.Queries<const BFloat16>(q.data()),
                                            c.Keys<const BFloat16>(k.data()),
                                            c.Keys<const BFloat16>(v.data()),
                                            c.Queries<BFloat16>(out.data()),
                                            logsumexp.data()};
    const HalfAttentionSequenceGradients gradients = {
        c.Queries<const BFloat16>(grad_out.data()),
        c.Queries<BFloat16>(grad_q.data()),
        c.Keys<BFloat16>(grad_k.data()),
        c.Keys<BFloat16>(grad_v.data())};
    using Sequences = std::span<const HalfAttentionSequence>;
    using Gradients = std::span<const HalfAttentionSequenceGradients>;
    CausalAttention(2, c.heads, Sequences(&sequence, 1));
    CausalAttentionBackward(
        2, c.heads, Sequences(&sequence, 1), Gradients(&gradients, 1));
  }

  static std::vector<BFloat16> Halves(const std::vector<float>& values) {
    std::vector<BFloat16> halves;
    for (const float value : values) {
      halves.push_back(FromFloat<BFloat16>(value));
    }
    return halves;
  }
};

// Returns the largest ratio of an error to its bound plus float32's error.
double WorstShare(const std::vector<BFloat16>& found,
                  const Numbers& expected,
                  const Numbers& bounds) {
  double worst = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(ToFloat(found[i]) - expected[i]);
    worst = std::isnan(error) ? INFINITY
                              : std::max(worst, error / (bounds[i] + 2e-5));
  }
  return worst;
}

TEST(CausalAttentionTest, Bfloat16StaysWithinItsRoundings) {
  for (const AttentionHeads& heads : {AttentionHeads{1, 1, 16},
                                      AttentionHeads{9, 3, 64},
                                      AttentionHeads{6, 2, 20},
                                      AttentionHeads{4, 1, 128}}) {
    for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {5, 5}, {150, 150}, {70, 200}}) {
      Case c(heads, queries, keys);
      // An offset that all values share cancels out of the scores' gradients.
      for (float& value : c.v) value += 4.0F;
      for (auto* values : {&c.q, &c.k, &c.v, &c.grad_out}) {
        for (float& value : *values) value = RoundedTo<BFloat16>(value);
      }
      const Expected expected(c);
      const Bounds bounds(c, expected);
      const HalfCase half(c);
      const double shares[] = {
          WorstShare(half.out, expected.out, bounds.out),
          WorstShare(half.grad_q, expected.grad_q, bounds.grad_q),
          WorstShare(half.grad_k, expected.grad_k, bounds.grad_k),
          WorstShare(half.grad_v, expected.grad_v, bounds.grad_v)};
      const std::string name = absl::StrCat(heads.query,
                                            " heads of ",
                                            heads.dim,
                                            ", ",
                                            queries,
                                            " of ",
                                            keys,
                                            " tokens");
      std::cout << name << ": share of the bound, out " << shares[0]
                << ", gradients " << shares[1] << ", " << shares[2] << ", "
                << shares[3] << "\n";
      for (const double share : shares) EXPECT_LE(share, 1.0) << name;
    }
  }
}

// Long sequences take shorter blocks, so blocks have several sizes.
TEST(CausalAttentionTest, LongSequencesAgree) {
  Case c({2, 1, 8}, 3000, 3000);
  Compute({&c}, 2);
  const Expected expected(c);
  EXPECT_LT(WorstError(c.out, expected.out), 2e-5);
  EXPECT_LT(WorstError(c.grad_k, expected.grad_k), 2e-5);
}

TEST(CausalAttentionTest, ASequenceDoesNotDependOnThreadsOrOtherSequences) {
  const AttentionHeads heads{4, 2, 32};
  Case alone(heads, 77, 77);
  Compute({&alone}, 1);
  Case before(heads, 130, 130), same(heads, 77, 77), behind(heads, 3, 3);
  Compute({&before, &same, &behind}, 5);
  EXPECT_EQ(alone.out, same.out);
  EXPECT_EQ(alone.grad_q, same.grad_q);
  EXPECT_EQ(alone.grad_k, same.grad_k);
  EXPECT_EQ(alone.grad_v, same.grad_v);
}

TEST(CausalAttentionTest, ALaterTokenChangesNothingBeforeIt) {
  const AttentionHeads heads{2, 2, 16};
  Case whole(heads, 100, 100);
  Compute({&whole}, 1);
  Case begin(heads, 100, 100);
  begin.queries = begin.keys = 71;
  Compute({&begin}, 1);
  for (int64_t i = 0; i < 71 * heads.query * heads.dim; ++i) {
    ASSERT_EQ(begin.out[i], whole.out[i]) << i;
  }
}

// The scores are far beyond exp's range.
TEST(CausalAttentionTest, LargeScoresStayFinite) {
  Case c({1, 1, 16}, 40, 40);
  for (float& value : c.q) value *= 1000.0F;
  Compute({&c}, 1);
  const Expected expected(c);
  for (const auto* values : {&c.out, &c.grad_q, &c.grad_k, &c.grad_v}) {
    for (const float value : *values) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace dapd
