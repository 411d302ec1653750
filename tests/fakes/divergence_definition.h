// Computes the loss of a chunk of tokens by its definition in float64: every
// divergence, target and support by its formula, gradients by central
// differences. It shares no arithmetic with the kernels that it is compared
// with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "common/kernels/divergence_kernel.h"

namespace dapd {

// A term's support, if it has one, has this number of entries.
inline constexpr int kSupport = 4;

enum class Targets { kTeachers, kMixture, kCentredMixture, kRouted, kOneHot };
enum class Supports { kFull, kNormalised, kWithTail };

struct DivergenceCase {
  std::string name;
  int64_t tokens = 1;
  int64_t vocabulary = 40;
  float spread = 2.0F;
  DivergenceKind kind = DivergenceKind::kForwardKl;
  float clip = 0.05F;
  float scale = 1.0F;
  Targets targets = Targets::kTeachers;
  Supports supports = Supports::kFull;
  bool weights = false;
  // The terms of a student have two kinds, and only every second term has token
  // weights.
  bool mixed = false;
};

// Sources 0 and 1 are students, 2 to 4 their teachers, 5 is derived.
inline constexpr size_t kSources = 6;
inline constexpr size_t kDerived = 5;
inline constexpr size_t kStudents = 2;

// Holds a problem in host memory. The code that runs it sets the pointers of
// its terms and sources.
struct DivergenceProblem {
  DivergenceCase c;
  std::vector<std::vector<float>> logits;  // by source, [tokens, vocabulary]
  std::vector<DivergenceTerm> terms;
  std::vector<DerivedSource> derived;
  std::vector<int64_t> ids;          // [tokens]
  std::vector<int64_t> support;      // [tokens, kSupport]
  std::vector<float> token_weights;  // [tokens]
  std::vector<uint8_t> route;        // [tokens]

  explicit DivergenceProblem(const DivergenceCase& of) : c(of) {
    for (uint32_t s = 0; s < kSources; ++s) {
      logits.push_back(RandomLogits(20 + s));
    }
    // The first student nearly agrees with its teacher.
    for (size_t i = 0; i < logits[0].size(); ++i) {
      logits[0][i] = logits[2][i] + 0.05F * logits[0][i];
    }
    for (int64_t t = 0; t < c.tokens; ++t) {
      ids.push_back((t * 7 + c.vocabulary - 1) % c.vocabulary);
      token_weights.push_back(t % 3 == 1 ? 0.0F : 0.5F + 0.25F * (t % 3));
      route.push_back(static_cast<uint8_t>(t % 2));
      for (int64_t i = 0; i < kSupport; ++i) {
        support.push_back((t + i * (c.vocabulary / kSupport)) % c.vocabulary);
      }
    }
    const int last = c.targets == Targets::kTeachers ? 4 : 5;
    Add(0, 2, 0.5F);
    Add(1, 3, 0.25F);
    Add(1, last, 0.125F);
    Add(0, last, 1.0F);
    if (c.mixed) {
      Add(1, 2, 0.5F);
      terms.back().kind = DivergenceKind::kReverseKl;
      Add(1, 2, 0.75F);
      Add(1, 4, 0.5F);
      Add(0, 3, 0.25F);
      terms.back().kind = DivergenceKind::kReverseKl;
    }
    if (c.supports != Supports::kFull) {
      // The first term keeps the whole vocabulary, so that one student has
      // terms of both kinds.
      for (size_t k = 1; k < terms.size(); ++k) {
        terms[k].support_size = kSupport;
        terms[k].has_tail = c.supports == Supports::kWithTail;
      }
    }
    if (c.targets == Targets::kTeachers) return;
    DerivedSource source{.source = 5};
    switch (c.targets) {
      case Targets::kTeachers:
        break;
      case Targets::kMixture:
      case Targets::kCentredMixture:
        source.anchor = 2;
        source.parts[0] = 3;
        source.parts[1] = 4;
        source.factors[0] = 0.7F;
        source.factors[1] = -0.4F;
        source.num_parts = 2;
        source.recentre = c.targets == Targets::kCentredMixture;
        source.soft_clip =
            source.recentre ? 1.5F : std::numeric_limits<float>::infinity();
        source.strength = 0.8F;
        break;
      case Targets::kRouted:
        source.kind = DerivedSource::Kind::kRouted;
        source.parts[0] = 3;
        source.parts[1] = 4;
        source.num_parts = 2;
        break;
      case Targets::kOneHot:
        source.kind = DerivedSource::Kind::kOneHot;
        break;
    }
    derived.push_back(source);
  }

  void Add(int student, int target, float weight) {
    terms.push_back({.student = student,
                     .target = target,
                     .kind = c.kind,
                     .beta = 0.3F,
                     .clip = c.clip,
                     .weight = weight});
  }
  std::vector<float> RandomLogits(uint32_t seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<size_t>(c.tokens * c.vocabulary));
    for (float& number : numbers) number = c.spread * normal(random);
    return numbers;
  }
  bool HasTokenWeights(size_t term) const {
    return c.weights && (!c.mixed || term % 2 == 1);
  }
  float WeightOf(size_t term, int64_t token) const {
    return HasTokenWeights(term) ? token_weights[token] : 1.0F;
  }
};

// Evaluates the definition in float64 for one token.
class DivergenceDefinition {
 public:
  DivergenceDefinition(const DivergenceProblem& problem, int64_t token)
      : problem_(problem), token_(token) {
    for (const std::vector<float>& rows : problem.logits) {
      const auto begin = rows.begin() + token * problem.c.vocabulary;
      z_.emplace_back(begin, begin + problem.c.vocabulary);
    }
  }

  // Returns the unweighted loss of term k, with the given `clip`.
  double Loss(size_t k, double clip) const {
    const DivergenceTerm& term = problem_.terms[k];
    std::vector<double> log_q = LogProbabilities(term.target);
    std::vector<double> log_p = LogProbabilities(term.student);
    if (term.support_size > 0) {
      log_q = OverSupport(log_q, term.has_tail);
      log_p = OverSupport(log_p, term.has_tail);
    }
    double sum = 0.0;
    for (size_t i = 0; i < log_q.size(); ++i) {
      sum += std::min(Entry(term, log_q[i], log_p[i]), clip);
    }
    return problem_.WeightOf(k, token_) * sum;
  }

  // Returns the derivative of all terms of a student with respect to one logit.
  double Derivative(int student, int64_t v) {
    constexpr double kStep = 1e-5;
    double& z = z_[student][v];
    const double before = z;
    double difference = 0.0;
    for (const double sign : {1.0, -1.0}) {
      z = before + sign * kStep;
      for (size_t k = 0; k < problem_.terms.size(); ++k) {
        const DivergenceTerm& term = problem_.terms[k];
        if (term.student != student) continue;
        difference += sign * term.weight * Loss(k, term.clip);
      }
    }
    z = before;
    return difference / (2.0 * kStep);
  }

  double LogProbability(int source) const {
    return Normalised(z_[source], 1.0)[problem_.ids[token_]];
  }

 private:
  static std::vector<double> Normalised(const std::vector<double>& z,
                                        double scale) {
    const double max = *std::max_element(z.begin(), z.end());
    double sum = 0.0;
    for (const double value : z) sum += std::exp((value - max) * scale);
    std::vector<double> result;
    for (const double value : z) {
      result.push_back((value - max) * scale - std::log(sum));
    }
    return result;
  }

  std::vector<double> LogProbabilities(int source) const {
    const double scale = problem_.c.scale;
    if (source != static_cast<int>(kDerived)) {
      return Normalised(z_[source], scale);
    }
    const DerivedSource& derived = problem_.derived[0];
    if (derived.kind == DerivedSource::Kind::kRouted) {
      return Normalised(z_[derived.parts[problem_.route[token_]]], scale);
    }
    if (derived.kind == DerivedSource::Kind::kOneHot) {
      std::vector<double> row(z_[0].size(), kOneHotRest);
      row[problem_.ids[token_]] = 0.0;
      return row;
    }
    std::vector<double> delta(z_[0].size(), 0.0);
    double mean = 0.0;
    for (int i = 0; i < derived.num_parts; ++i) {
      const auto part = Normalised(z_[derived.parts[i]], scale);
      for (size_t v = 0; v < delta.size(); ++v) {
        delta[v] += derived.factors[i] * part[v];
        mean +=
            derived.factors[i] * part[v] / static_cast<double>(delta.size());
      }
    }
    std::vector<double> log_q = Normalised(z_[derived.anchor], scale);
    for (size_t v = 0; v < delta.size(); ++v) {
      double x = delta[v] - (derived.recentre ? mean : 0.0);
      if (std::isfinite(derived.soft_clip)) {
        x = derived.soft_clip * std::tanh(x / derived.soft_clip);
      }
      log_q[v] += derived.strength * x;
    }
    return Normalised(log_q, 1.0);
  }

  std::vector<double> OverSupport(const std::vector<double>& all,
                                  bool has_tail) const {
    std::vector<double> result;
    double sum = 0.0;
    for (int i = 0; i < kSupport; ++i) {
      result.push_back(all[problem_.support[token_ * kSupport + i]]);
      sum += std::exp(result.back());
    }
    if (!has_tail) return Normalised(result, 1.0);
    result.push_back(std::log1p(-sum));
    return result;
  }

  static double Entry(const DivergenceTerm& term, double log_q, double log_p) {
    const double q = std::exp(log_q);
    const double p = std::exp(log_p);
    switch (term.kind) {
      case DivergenceKind::kForwardKl:
        return q * (log_q - log_p);
      case DivergenceKind::kReverseKl:
        return p * (log_p - log_q);
      case DivergenceKind::kJensenShannon:
        break;
    }
    const double beta = term.beta;
    const double log_m = std::log(beta * q + (1.0 - beta) * p);
    return beta * q * (log_q - log_m) + (1.0 - beta) * p * (log_p - log_m);
  }

  const DivergenceProblem& problem_;
  int64_t token_;
  std::vector<std::vector<double>> z_;  // by source
};

}  // namespace dapd
