// The passes over one token's rows, compiled once a level.
#include <math.h>

#include "common/kernels/clipped_kl_levels.h"
#include "common/kernels/simd.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// Entries whose sum is taken in float lanes before it goes to a double, and
// whose gradient is collected on the stack.
constexpr int64_t kBlock = 512;

Floats Broadcast(float value) { return value - Floats{}; }

Floats ExpOf(Floats x) { return Exp(x); }

// In double, so that a row's sum errs by little more than its terms.
double SumOfLanes(Floats value) {
  double sum = 0.0;
  for (int i = 0; i < kLanes; ++i) sum += value[i];
  return sum;
}

Floats Max(Floats a, Floats b) { return a > b ? a : b; }

// What a loop over a row gets of each vector: all lanes, or at the row's end
// the first few.
struct AllLanes {
  static Floats Read(const float* from) { return Load<Floats>(from); }
  static void Write(float* to, Floats value) { Store(value, to); }
  // The lanes that are there, 0 in the others.
  static Floats Keep(Floats value) { return value; }
};

struct FirstLanes {
  int64_t count;

  Floats Read(const float* from) const { return LoadPart(from, count, 0.0F); }
  void Write(float* to, Floats value) const { StorePart(value, count, to); }
  Floats Keep(Floats value) const {
    for (int64_t i = count; i < kLanes; ++i) value[i] = 0.0F;
    return value;
  }
};

// body(lanes, i) for i = begin, begin + kLanes, ... below end.
template <typename Body>
void ForEachVector(int64_t begin, int64_t end, const Body& body) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(AllLanes{}, i);
  if (i < end) body(FirstLanes{end - i}, i);
}

template <typename Body>
void ForEachBlock(int64_t size, const Body& body) {
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    body(begin, begin + kBlock < size ? begin + kBlock : size);
  }
}

RowStatistics Statistics(const float* z, int64_t size, float scale) {
  Floats top = Broadcast(z[0]);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) top = Max(top, Load<Floats>(z + i));
  float max = Largest(top);
  for (; i < size; ++i) {
    if (z[i] > max) max = z[i];
  }
  const Floats all_max = Broadcast(max);
  const Floats all_scale = Broadcast(scale);
  double sum = 0.0;
  ForEachBlock(size, [&](int64_t begin, int64_t end) {
    Floats part = Floats{};
    ForEachVector(begin, end, [&](auto lanes, int64_t v) {
      part +=
          lanes.Keep(ScaledExp(lanes.Read(z + v), all_max, all_scale, ExpOf));
    });
    sum += SumOfLanes(part);
  });
  return {max,
          static_cast<float>(1.0 / sum),
          static_cast<double>(max) * scale + log(sum)};
}

// A row and its softmax.
struct Row {
  float* z;
  Floats max;
  Floats inverse_sum;

  Row(float* logits, const RowStatistics& statistics)
      : z(logits),
        max(Broadcast(statistics.max)),
        inverse_sum(Broadcast(statistics.inverse_sum)) {}

  Floats Probability(Floats value, Floats scale) const {
    return ScaledExp(value, max, scale, ExpOf) * inverse_sum;
  }
};

// A term over one token.
struct Pair {
  Row teacher;
  Row student;
  Floats lse_difference;
  Floats clip;
  Floats scale;

  template <typename Lanes>
  ClippedEntry<Floats> At(Lanes lanes, int64_t v) const {
    const Floats zq = lanes.Read(teacher.z + v);
    const Floats ratio =
        LogRatio(zq, lanes.Read(student.z + v), scale, lse_difference);
    return ClipEntry(teacher.Probability(zq, scale), ratio, clip);
  }
};

KlSums SumsOf(const Pair& pair, int64_t size) {
  KlSums sums;
  Ints over = Ints{};
  ForEachBlock(size, [&](int64_t begin, int64_t end) {
    Floats clipped = Floats{};
    Floats unclipped = Floats{};
    Floats kept = Floats{};
    ForEachVector(begin, end, [&](auto lanes, int64_t v) {
      const ClippedEntry<Floats> entry = pair.At(lanes, v);
      clipped += lanes.Keep(entry.clipped);
      unclipped += lanes.Keep(entry.component);
      kept += lanes.Keep(entry.kept_q);
      over |= lanes.Keep(entry.component - entry.clipped) > Floats{};
    });
    sums.clipped += SumOfLanes(clipped);
    sums.unclipped += SumOfLanes(unclipped);
    sums.kept_mass += SumOfLanes(kept);
  });
  for (int lane = 0; lane < kLanes; ++lane) sums.any_clipped |= over[lane] != 0;
  return sums;
}

// The passes over one token's rows.
struct Token {
  const KlChunk& chunk;
  const RowStatistics* statistics;  // one a source
  int64_t index;

  float* Logits(int source) const {
    const KlSource& from = chunk.sources[source];
    return from.logits + index * from.stride;
  }

  Pair PairOf(const KlTerm& term) const {
    const RowStatistics& q = statistics[term.teacher];
    const RowStatistics& p = statistics[term.student];
    return {Row(Logits(term.teacher), q),
            Row(Logits(term.student), p),
            Broadcast(static_cast<float>(q.log_sum_exp - p.log_sum_exp)),
            Broadcast(term.clip),
            Broadcast(chunk.scale)};
  }

  // Replaces the student's logits by their gradient. `sums`: one a term.
  void WriteGradient(int student, const KlSums* sums) const {
    double mass = 0.0;
    for (size_t k = 0; k < chunk.terms.size(); ++k) {
      const KlTerm& term = chunk.terms[k];
      if (term.student == student) mass += term.weight * sums[k].kept_mass;
    }
    const Floats all_mass = Broadcast(static_cast<float>(mass));
    const Floats scale = Broadcast(chunk.scale);
    const Row row(Logits(student), statistics[student]);
    float pull[kBlock];
    ForEachBlock(chunk.vocabulary, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < kBlock; i += kLanes) Store(Floats{}, pull + i);
      for (const KlTerm& term : chunk.terms) {
        if (term.student != student) continue;
        const Pair pair = PairOf(term);
        const Floats weight = Broadcast(term.weight);
        ForEachVector(begin, end, [&](auto lanes, int64_t v) {
          float* here = pull + (v - begin);
          Store(Load<Floats>(here) + weight * pair.At(lanes, v).kept_q, here);
        });
      }
      ForEachVector(begin, end, [&](auto lanes, int64_t v) {
        const Floats p = row.Probability(lanes.Read(row.z + v), scale);
        const Floats pulled = Load<Floats>(pull + (v - begin));
        lanes.Write(row.z + v, LogitGradient(p, all_mass, pulled, scale));
      });
    });
  }
};

void OneToken(const KlChunk& chunk,
              int64_t index,
              RowStatistics* statistics,
              KlSums* sums) {
  const Token token{chunk, statistics, index};
  const int num_sources = static_cast<int>(chunk.sources.size());
  for (int s = 0; s < num_sources; ++s) {
    statistics[s] = Statistics(token.Logits(s), chunk.vocabulary, chunk.scale);
  }
  for (size_t k = 0; k < chunk.terms.size(); ++k) {
    sums[k] = SumsOf(token.PairOf(chunk.terms[k]), chunk.vocabulary);
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

}  // namespace

ClippedKlKernel MakeClippedKlKernel() { return {OneToken, ExpOfRow}; }

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
