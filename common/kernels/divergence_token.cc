// The passes over one token's rows. This file is compiled once per CPU level.
#include <math.h>

#include "common/kernels/divergence_cpu_levels.h"
#include "common/kernels/divergence_support.h"
#include "common/kernels/simd_rows.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// A row and its softmax.
struct Row {
  const float* z;
  Floats max;
  Floats inverse_sum;

  Row(const float* logits, const RowStatistics& statistics)
      : z(logits),
        max(Broadcast(statistics.max)),
        inverse_sum(Broadcast(statistics.inverse_sum)) {}

  Floats Probability(Floats value, Floats scale) const {
    return ScaledExp(value, max, scale, ExpOf) * inverse_sum;
  }
};

struct FloatsMath {
  Floats Exp(Floats x) const { return ExpOf(x); }
  Floats Log(Floats x) const { return LogOf(x); }
  Floats Tanh(Floats x) const { return TanhOf(x); }
};

struct DoubleMath {
  double Exp(double x) const { return exp(x); }
  double Log(double x) const { return log(x); }
  double Expm1(double x) const { return expm1(x); }
};

// A term over one token and the whole vocabulary.
struct Pair {
  Row target;
  Row student;
  Floats lse_difference;
  Floats beta;
  Floats clip;
  Floats scale;

  template <DivergenceKind kKind, typename Lanes>
  ClippedEntry<Floats> At(Lanes lanes, int64_t v) const {
    const Floats zq = lanes.Read(target.z + v);
    const Floats zp = lanes.Read(student.z + v);
    return EntryOf<kKind>(target.Probability(zq, scale),
                          student.Probability(zp, scale),
                          LogRatio(zq, zp, scale, lse_difference),
                          beta,
                          clip,
                          FloatsMath{});
  }
};

template <DivergenceKind kKind>
DivergenceTokenSums SumsOf(const Pair& pair, int64_t size) {
  DivergenceTokenSums sums;
  Ints over = Ints{};
  ForEachBlock(size, [&](int64_t begin, int64_t end) {
    Floats clipped = Floats{};
    Floats unclipped = Floats{};
    Floats mass = Floats{};
    ForEachVector(begin, end, [&](auto lanes, int64_t v) {
      const ClippedEntry<Floats> entry = pair.At<kKind>(lanes, v);
      clipped += lanes.Keep(entry.clipped);
      unclipped += lanes.Keep(entry.component);
      mass += lanes.Keep(entry.pull);
      over |= lanes.Keep(entry.component - entry.clipped) > Floats{};
    });
    sums.clipped += SumOfLanes(clipped);
    sums.unclipped += SumOfLanes(unclipped);
    sums.mass += SumOfLanes(mass);
  });
  for (int lane = 0; lane < kLanes; ++lane) sums.any_clipped |= over[lane] != 0;
  return sums;
}

// Adds weight * e_v of entries [begin, end) to `pull`.
template <DivergenceKind kKind>
void AddPull(
    const Pair& pair, float weight, int64_t begin, int64_t end, float* pull) {
  const Floats all_weight = Broadcast(weight);
  ForEachVector(begin, end, [&](auto lanes, int64_t v) {
    float* here = pull + (v - begin);
    Store(Load<Floats>(here) + all_weight * pair.At<kKind>(lanes, v).pull,
          here);
  });
}

struct Token {
  const DivergenceChunk& chunk;
  const TokenScratch& scratch;
  int64_t index;

  void Measure(int source) const {
    scratch.statistics[source] =
        Statistics(scratch.rows[source], chunk.vocabulary, chunk.scale);
  }

  void ReadGivenSources() const {
    for (size_t s = 0; s < chunk.sources.size(); ++s) {
      const DivergenceSource& from = chunk.sources[s];
      scratch.rows[s] = from.logits + index * from.stride;
    }
    const auto is_derived = [&](int source) {
      for (const DerivedSource& derived : chunk.derived) {
        if (derived.source == source) return true;
      }
      return false;
    };
    for (int s = 0; s < static_cast<int>(chunk.sources.size()); ++s) {
      if (!is_derived(s)) Measure(s);
    }
  }

  // Returns log softmax(s z) of a source at entry v.
  template <typename Lanes>
  Floats LogProbability(Lanes lanes, int source, int64_t v) const {
    return lanes.Read(scratch.rows[source] + v) * Broadcast(chunk.scale) -
           Broadcast(
               static_cast<float>(scratch.statistics[source].log_sum_exp));
  }

  // Writes the row of a source that is computed entry by entry.
  void WriteMixture(const DerivedSource& derived) const {
    const auto at = [&](auto lanes, int64_t v) {
      return [this, lanes, v](int source) {
        return LogProbability(lanes, source, v);
      };
    };
    double mean = 0.0;
    if (derived.recentre) {
      ForEachBlock(chunk.vocabulary, [&](int64_t begin, int64_t end) {
        Floats part = Floats{};
        ForEachVector(begin, end, [&](auto lanes, int64_t v) {
          part += lanes.Keep(DeltaOf<Floats>(derived, at(lanes, v)));
        });
        mean += SumOfLanes(part);
      });
      mean /= static_cast<double>(chunk.vocabulary);
    }
    const Floats temperature = Broadcast(1.0F / chunk.scale);
    float* out = scratch.rows[derived.source];
    ForEachVector(0, chunk.vocabulary, [&](auto lanes, int64_t v) {
      const Floats log_q = DerivedEntry<Floats>(
          derived, at(lanes, v), static_cast<float>(mean), FloatsMath{});
      lanes.Write(out + v, log_q * temperature);
    });
  }

  void WriteOneHot(const DerivedSource& derived) const {
    float* out = scratch.rows[derived.source];
    const Floats rest = Broadcast(kOneHotRest / chunk.scale);
    ForEachVector(0, chunk.vocabulary, [&](auto lanes, int64_t v) {
      lanes.Write(out + v, rest);
    });
    out[derived.ids[index]] = 0.0F;
  }

  void Route(const DerivedSource& derived) const {
    const int taken = derived.TakenBy(index);
    scratch.rows[derived.source] = scratch.rows[taken];
    scratch.statistics[derived.source] = scratch.statistics[taken];
  }

  void WriteLogprob(int source) const {
    const DivergenceSource& from = chunk.sources[source];
    if (from.ids == nullptr) return;
    const float* z = scratch.rows[source];
    const double log_sum_exp =
        chunk.scale == 1.0F ? scratch.statistics[source].log_sum_exp
                            : Statistics(z, chunk.vocabulary, 1.0F).log_sum_exp;
    from.logprobs[index] = static_cast<float>(
        static_cast<double>(z[from.ids[index]]) - log_sum_exp);
  }

  Pair PairOf(const DivergenceTerm& term) const {
    const RowStatistics& q = scratch.statistics[term.target];
    const RowStatistics& p = scratch.statistics[term.student];
    return {Row(scratch.rows[term.target], q),
            Row(scratch.rows[term.student], p),
            Broadcast(static_cast<float>(q.log_sum_exp - p.log_sum_exp)),
            Broadcast(term.beta),
            Broadcast(term.clip),
            Broadcast(chunk.scale)};
  }

  double LogProbabilityOf(int source, int64_t id) const {
    return static_cast<double>(scratch.rows[source][id]) * chunk.scale -
           scratch.statistics[source].log_sum_exp;
  }

  // Returns the log of the sum of the probabilities of `count` entries.
  double LogProbabilityOfAll(int source, const int64_t* ids, int count) const {
    const DoubleMath math;
    double largest = LogProbabilityOf(source, ids[0]);
    for (int i = 1; i < count; ++i) {
      const double other = LogProbabilityOf(source, ids[i]);
      if (other > largest) largest = other;
    }
    double sum = 0.0;
    for (int i = 0; i < count; ++i) {
      sum += math.Exp(LogProbabilityOf(source, ids[i]) - largest);
    }
    return largest + math.Log(sum);
  }

  // Returns the sums over a support. If `pull` is not null, writes there what
  // each logit of the support gets in addition to what all logits get.
  DivergenceTokenSums SumsOfSupport(const DivergenceTerm& term,
                                    float* pull) const {
    const DoubleMath math;
    const int64_t* ids = term.support + index * term.support_size;
    const SupportShape shape =
        ShapeOf(LogProbabilityOfAll(term.target, ids, term.support_size),
                LogProbabilityOfAll(term.student, ids, term.support_size),
                term.has_tail,
                math);
    DivergenceTokenSums sums;
    const auto add = [&](double log_q, double log_p) {
      const ClippedEntry<double> entry =
          SupportEntry(term.kind, log_q, log_p, term.beta, term.clip, math);
      sums.clipped += entry.clipped;
      sums.unclipped += entry.component;
      sums.any_clipped |= entry.component > entry.clipped;
      return entry.pull;
    };
    double of_support = 0.0;
    for (int i = 0; i < term.support_size; ++i) {
      const double log_p =
          LogProbabilityOf(term.student, ids[i]) - shape.norm_p;
      of_support +=
          add(LogProbabilityOf(term.target, ids[i]) - shape.norm_q, log_p);
    }
    double of_tail = 0.0;
    if (term.has_tail) {
      of_tail = add(shape.log_tail_q, shape.log_tail_p);
      if (shape.tail_is_constant) of_tail = 0.0;
    }
    const SupportPull whole =
        PullOf(of_support, of_tail, math.Exp(shape.log_tail_p), term.has_tail);
    sums.mass = whole.outside;
    if (pull == nullptr) return sums;
    for (int i = 0; i < term.support_size; ++i) {
      const double log_p = LogProbabilityOf(term.student, ids[i]);
      const double log_q = LogProbabilityOf(term.target, ids[i]);
      const ClippedEntry<double> entry = SupportEntry(term.kind,
                                                      log_q - shape.norm_q,
                                                      log_p - shape.norm_p,
                                                      term.beta,
                                                      term.clip,
                                                      math);
      pull[i] =
          static_cast<float>(math.Exp(log_p - shape.norm_p) * whole.total -
                             entry.pull - math.Exp(log_p) * whole.outside);
    }
    return sums;
  }

  DivergenceTokenSums SumsOfTerm(const DivergenceTerm& term,
                                 float* support_pull) const {
    const float weight = TokenWeight(term, index);
    if (weight == 0.0F) return {};
    DivergenceTokenSums sums = RawSums(term, support_pull);
    sums.clipped *= weight;
    sums.unclipped *= weight;
    return sums;
  }

  DivergenceTokenSums RawSums(const DivergenceTerm& term,
                              float* support_pull) const {
    if (term.support != nullptr) return SumsOfSupport(term, support_pull);
    return WithKind(term.kind, [&]<DivergenceKind kKind>() {
      return SumsOf<kKind>(PairOf(term), chunk.vocabulary);
    });
  }

  void AddPullOf(const DivergenceTerm& term,
                 int64_t begin,
                 int64_t end,
                 float* pull) const {
    const float weight = term.weight * TokenWeight(term, index);
    WithKind(term.kind, [&]<DivergenceKind kKind>() {
      AddPull<kKind>(PairOf(term), weight, begin, end, pull);
    });
  }

  bool IsOf(const DivergenceTerm& term, int student) const {
    return term.student == student && TokenWeight(term, index) != 0.0F;
  }

  // Replaces the student's logits by their gradient. `sums` has one entry per
  // term.
  void WriteGradient(int student, const DivergenceTokenSums* sums) const {
    double mass = 0.0;
    for (size_t k = 0; k < chunk.terms.size(); ++k) {
      const DivergenceTerm& term = chunk.terms[k];
      if (!IsOf(term, student)) continue;
      mass += term.weight * TokenWeight(term, index) * sums[k].mass;
    }
    const Floats all_mass = Broadcast(static_cast<float>(mass));
    const Floats scale = Broadcast(chunk.scale);
    float* const z = scratch.rows[student];
    const Row row(z, scratch.statistics[student]);
    float pull[kBlock];
    ForEachBlock(chunk.vocabulary, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < kBlock; i += kLanes) Store(Floats{}, pull + i);
      for (const DivergenceTerm& term : chunk.terms) {
        if (!IsOf(term, student) || term.support != nullptr) continue;
        AddPullOf(term, begin, end, pull);
      }
      ForEachVector(begin, end, [&](auto lanes, int64_t v) {
        const Floats p = row.Probability(lanes.Read(z + v), scale);
        const Floats pulled = Load<Floats>(pull + (v - begin));
        lanes.Write(z + v, LogitGradient(p, all_mass, pulled, scale));
      });
    });
    AddSupports(student);
  }

  // Adds what SumsOfSupport stored for each logit of a support.
  void AddSupports(int student) const {
    const float* next = scratch.support;
    for (const DivergenceTerm& term : chunk.terms) {
      const float* const pull = next;
      next += term.support_size;
      if (!IsOf(term, student) || term.support == nullptr) continue;
      const float factor = chunk.scale * term.weight * TokenWeight(term, index);
      const int64_t* ids = term.support + index * term.support_size;
      for (int i = 0; i < term.support_size; ++i) {
        scratch.rows[student][ids[i]] += factor * pull[i];
      }
    }
  }
};

void OneToken(const DivergenceChunk& chunk,
              int64_t index,
              const TokenScratch& scratch,
              DivergenceTokenSums* sums) {
  const Token token{chunk, scratch, index};
  const int num_sources = static_cast<int>(chunk.sources.size());
  token.ReadGivenSources();
  for (const DerivedSource& derived : chunk.derived) {
    DeriveRow(derived, token);
  }
  for (int s = 0; s < num_sources; ++s) token.WriteLogprob(s);
  float* support = scratch.support;
  for (size_t k = 0; k < chunk.terms.size(); ++k) {
    sums[k] = token.SumsOfTerm(chunk.terms[k],
                               chunk.with_gradient ? support : nullptr);
    support += chunk.terms[k].support_size;
  }
  if (!chunk.with_gradient) return;
  for (int s = 0; s < num_sources; ++s) {
    if (chunk.sources[s].is_student) token.WriteGradient(s, sums);
  }
}

void ExpOfRow(const float* x, int64_t count, float* result) {
  ForEachVector(0, count, [&](auto lanes, int64_t i) {
    lanes.Write(result + i, Exp(lanes.Read(x + i)));
  });
}

void LogOfRow(const float* x, int64_t count, float* result) {
  ForEachVector(0, count, [&](auto lanes, int64_t i) {
    lanes.Write(result + i, LogOf(lanes.Read(x + i)));
  });
}

}  // namespace

DivergenceKernel MakeDivergenceKernel() {
  return {OneToken, ExpOfRow, LogOfRow};
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
