// What a block of a cluster computes of a token (divergence_cluster.h): the
// passes over its part of the rows.
#pragma once

#include "common/kernels/cuda/divergence_exchange.cuh"
#include "common/kernels/cuda/divergence_math.cuh"
#include "common/kernels/cuda/divergence_plan.h"
#include "common/kernels/cuda/divergence_slice.cuh"

namespace dapd {

// A term at the block's token. Of a student's terms that count, two of a kind
// that follow each other are added up together: they have its probabilities in
// common.
struct TermOfToken {
  static constexpr int kNone = -1;
  static constexpr int kEarlier = -2;

  float weight = 0.0F;  // the token's; a term without any does not count
  // The later term that this one is added up with, none, or an earlier one.
  int with = kNone;
  // Whether there is none of the student's before them, and behind them.
  bool is_first = false;
  bool is_last = false;
};

// A student at the block's token.
struct StudentOfToken {
  float mass = 0.0F;  // of its terms, with their weights
  bool has_terms = false;
};

// What a block's threads share beside its rows.
struct SharedState {
  Exchange<RowPart, kClusterMaxMeasures> rows;
  Exchange<SumPart, kClusterMaxTerms> sums;
  RowStatistics measured[kClusterMaxMeasures];
  TermOfToken terms[kClusterMaxTerms];
  SumPart totals[kClusterMaxTerms];
  StudentOfToken students[kClusterMaxGiven];  // by slot
  RowStatistics statistics[kCudaMaxSources];
  int slot[kCudaMaxSources];  // of this token: a routed source has another's
};

#ifdef DAPD_HAS_CLUSTERS

// Calls visit.operator()<count>(), so that what is said of so many rows stays
// in registers.
template <int kCount = 1, typename Visit>
__device__ inline void WithCount(int count, const Visit& visit) {
  if constexpr (kCount < kClusterMaxGiven) {
    if (count > kCount) return WithCount<kCount + 1>(count, visit);
  }
  visit.template operator()<kCount>();
}

// A block of the cluster, and the token it computes.
class ClusterBlock {
 public:
  __device__ ClusterBlock(const CudaDivergenceArgs& args,
                          const ClusterPlan& plan,
                          float* rows,
                          SharedState& shared)
      : args_(args),
        plan_(plan),
        shared_(shared),
        exchange_(plan.blocks),
        rows_(args, plan, exchange_.rank(), rows) {}

  // Begins to load a token's rows.
  __device__ void Load(int64_t token) const {
    WithCount(plan_.num_given,
              [&]<int kGiven>() { rows_.template Load<kGiven>(token); });
  }

  // From rows that are under way to sums and gradients. Of `next`, if there is
  // such a token, the rows are under way behind it.
  template <typename T>
  __device__ void Run(int64_t token, int64_t next) {
    token_ = token;
    ReadWeights();
    MeasureGiven();
    for (int d = 0; d < args_.num_derived; ++d) {
      DeriveRow(args_.derived[d], *this);
    }
    AddUpTerms();
    WriteSums();
    if (args_.with_gradient) WriteGradients<T>();
    if (next < args_.num_tokens) Load(next);
  }

  // Of entry i of group g, by source.
  __device__ auto LogProbabilitiesAt(int g, int i) const {
    return [this, g, i](int source) {
      return rows_.At(shared_.slot[source], g).value[i] * args_.scale -
             static_cast<float>(shared_.statistics[source].log_sum_exp);
    };
  }

  // The four that DeriveRow asks for.
  __device__ void Route(const DerivedSource& derived) const {
    if (First() == 0) {
      const int taken = derived.TakenBy(token_);
      shared_.slot[derived.source] = shared_.slot[taken];
      shared_.statistics[derived.source] = shared_.statistics[taken];
    }
    __syncthreads();
  }

  __device__ void WriteMixture(const DerivedSource& derived) {
    float mean = 0.0F;
    if (derived.recentre) mean = MeanDelta(derived);
    const int slot = plan_.slot[derived.source];
    for (int g = First(); g < rows_.num_groups(); g += kClusterThreads) {
      Group row;
      for (int i = 0; i < kClusterGroup; ++i) {
        row.value[i] =
            g * kClusterGroup + i < rows_.size()
                ? DerivedEntry<float>(
                      derived, LogProbabilitiesAt(g, i), mean, FloatMath{}) /
                      args_.scale
                : kPad;
      }
      rows_.At(slot, g) = row;
    }
  }

  __device__ void WriteOneHot(const DerivedSource& derived) const {
    const int slot = plan_.slot[derived.source];
    const int64_t id = derived.ids[token_] - rows_.begin();
    const float rest = kOneHotRest / args_.scale;
    for (int g = First(); g < rows_.num_groups(); g += kClusterThreads) {
      Group row;
      for (int i = 0; i < kClusterGroup; ++i) {
        const int at = g * kClusterGroup + i;
        row.value[i] = at >= rows_.size() ? kPad : at == id ? 0.0F : rest;
      }
      rows_.At(slot, g) = row;
    }
  }

  __device__ void Measure(int source) {
    const int slot = plan_.slot[source];
    Bring(0, MeasureRow(slot, args_.scale), args_.scale);
    CombineRows(1, [this](int) { return args_.scale; });
    if (First() == 0) shared_.statistics[source] = shared_.measured[0];
    __syncthreads();
  }

 private:
  __device__ static int First() { return static_cast<int>(threadIdx.x); }
  __device__ int WarpOfThread() const { return First() / kWarp; }

  // A thread's statistics as number `i` of what CombineRows takes.
  __device__ void Bring(int i, const RunningRow& running, float scale) {
    const float factor = scale * kLog2OfE;
    const float most = ButterflyMax(running.max);
    const float sum = ButterflySum<kWarp>(running.SumBeside(most, factor));
    if (First() % kWarp == 0) {
      shared_.rows.of_warp[WarpOfThread()][i] = {most, sum};
    }
  }

  // scale_of(i): as Bring had it.
  template <typename Scale>
  __device__ void CombineRows(int count, const Scale& scale_of) {
    exchange_.Combine(
        shared_.rows,
        count,
        [&](int i) { return scale_of(i) * kLog2OfE; },
        [&](int i, const RowPart& part) {
          shared_.measured[i] = StatisticsOf(part.max, part.sum, scale_of(i));
        });
  }

  __device__ RunningRow MeasureRow(int slot, float scale) const {
    RunningRow running;
    for (int g = First(); g < rows_.num_groups(); g += kClusterThreads) {
      const Group row = rows_.At(slot, g);
      running.Take(row.value, scale * kLog2OfE);
    }
    return running;
  }

  // The statistics of the rows that are loaded, group by group as they arrive.
  template <int kGiven>
  __device__ void BringGiven() {
    // Groups that are not waited for at first. A wait for a number that is not
    // known to the compiler is a long choice.
    constexpr int kLeftFirst = 2;
    RunningRow running[kGiven];
    const float factor = args_.scale * kLog2OfE;
    int under_way =
        (rows_.num_groups() - First() + kClusterThreads - 1) / kClusterThreads;
    for (int g = First(); g < rows_.num_groups(); g += kClusterThreads) {
      --under_way;
      __pipeline_wait_prior(under_way >= kLeftFirst ? kLeftFirst : 0);
#pragma unroll
      for (int s = 0; s < kGiven; ++s) {
        // Copied, so that it is one load.
        const Group row = rows_.At(s, g);
        running[s].Take(row.value, factor);
      }
    }
#pragma unroll
    for (int s = 0; s < kGiven; ++s) Bring(s, running[s], args_.scale);
  }

  // Of all rows that are loaded, and of those whose log-probabilities are asked
  // for.
  __device__ void MeasureGiven() {
    WithCount(plan_.num_given, [&]<int kGiven>() { BringGiven<kGiven>(); });
    int count = plan_.num_given;
    for (int s = 0; s < plan_.num_given; ++s) {
      if (args_.sources[plan_.given[s]].ids == nullptr) continue;
      Bring(count++, MeasureRow(s, 1.0F), 1.0F);
    }
    CombineRows(count, [this](int i) {
      return i < plan_.num_given ? args_.scale : 1.0F;
    });
    if (First() < args_.num_sources) {
      shared_.slot[First()] = plan_.slot[First()];
    }
    if (First() < plan_.num_given) {
      shared_.statistics[plan_.given[First()]] = shared_.measured[First()];
    }
    if (First() < args_.num_terms) PlaceTerm(First());
    WriteLogprobs();
    __syncthreads();
  }

  __device__ void WriteLogprobs() const {
    if (First() != 0) return;
    int next = plan_.num_given;
    for (int s = 0; s < plan_.num_given; ++s) {
      const DivergenceSource& source = args_.sources[plan_.given[s]];
      if (source.ids == nullptr) continue;
      const double log_sum_exp = shared_.measured[next++].log_sum_exp;
      const int64_t at = source.ids[token_] - rows_.begin();
      if (at < 0 || at >= rows_.size()) continue;
      source.logprobs[token_] = static_cast<float>(
          static_cast<double>(rows_.Row(s)[at]) - log_sum_exp);
    }
  }

  __device__ float MeanDelta(const DerivedSource& derived) {
    float sum = 0.0F;
    for (int g = First(); g < rows_.num_groups(); g += kClusterThreads) {
      for (int i = 0; i < kClusterGroup && g * kClusterGroup + i < rows_.size();
           ++i) {
        sum += DeltaOf<float>(derived, LogProbabilitiesAt(g, i));
      }
    }
    sum = ButterflySum<kWarp>(sum);
    if (First() % kWarp == 0) {
      shared_.sums.of_warp[WarpOfThread()][0] = {sum, 0.0, 0.0, 0};
    }
    CombineSums(1);
    return static_cast<float>(shared_.totals[0].clipped /
                              static_cast<double>(args_.vocabulary));
  }

  __device__ void CombineSums(int count) {
    exchange_.Combine(
        shared_.sums,
        count,
        [](int) { return 0.0F; },
        [&](int i, const SumPart& part) { shared_.totals[i] = part; });
  }

  // Before the rows are waited for, and the barriers behind that.
  __device__ void ReadWeights() const {
    if (First() < args_.num_terms) {
      shared_.terms[First()].weight = TokenWeight(args_.terms[First()], token_);
    }
  }

  __device__ bool Counts(int term, int student) const {
    return args_.terms[term].student == student &&
           shared_.terms[term].weight != 0.0F;
  }

  // Where a term stands among those of its student, by one thread.
  __device__ void PlaceTerm(int k) const {
    const int student = args_.terms[k].student;
    TermOfToken& term = shared_.terms[k];
    term.with = TermOfToken::kNone;
    term.is_first = true;
    int alone = -1;  // the last one, if another may still be added up with it
    int last = -1;
    for (int other = 0; other < args_.num_terms; ++other) {
      if (!Counts(other, student)) continue;
      if (other < k) term.is_first = false;
      last = other;
      if (alone < 0 || args_.terms[alone].kind != args_.terms[other].kind) {
        alone = other;
        continue;
      }
      if (alone == k) term.with = other;
      if (other == k) term.with = TermOfToken::kEarlier;
      alone = -1;
    }
    term.is_last = last == (term.with >= 0 ? term.with : k);
  }

  __device__ void AddUpTerms() {
    for (int k = 0; k < args_.num_terms; ++k) {
      const TermOfToken& here = shared_.terms[k];
      if (here.weight == 0.0F) {
        BringSum(k, {});
      } else if (here.with != TermOfToken::kEarlier) {
        WithKind(args_.terms[k].kind, [&]<DivergenceKind kKind>() {
          if (here.with == TermOfToken::kNone) {
            AddUp<kKind, 1>({k});
          } else {
            AddUp<kKind, 2>({k, here.with});
          }
        });
      }
    }
    CombineSums(args_.num_terms);
  }

  __device__ void BringSum(int k, const SumPart& of_warp) const {
    if (First() % kWarp == 0) {
      shared_.sums.of_warp[WarpOfThread()][k] = of_warp;
    }
  }

  // Terms of one student and kind.
  template <DivergenceKind kKind, int kTerms>
  __device__ void AddUp(const int (&terms)[kTerms]) const {
    const int source = args_.terms[terms[0]].student;
    const int student = plan_.slot[source];
    const int room = plan_.room[source];
    const TermOfToken& here = shared_.terms[terms[0]];
    const bool adds = !here.is_first;
    const bool leaves_probabilities = args_.with_gradient && here.is_last;
    TermEntries entries[kTerms];
    int target[kTerms];
    RunningSums running[kTerms];
#pragma unroll
    for (int t = 0; t < kTerms; ++t) {
      const DivergenceTerm& term = args_.terms[terms[t]];
      entries[t] = EntriesOf(term,
                             shared_.statistics[term.target],
                             shared_.statistics[source],
                             args_.scale,
                             shared_.terms[terms[t]].weight);
      target[t] = shared_.slot[term.target];
    }
    for (int g = First(); g < rows_.num_groups(); g += kClusterThreads) {
      const Group z = rows_.At(student, g);
      Group p;
#pragma unroll
      for (int i = 0; i < kClusterGroup; ++i) {
        p.value[i] = entries[0].p.ProbabilityOf(z.value[i]);
      }
      Group pull = {};
      if (adds) pull = rows_.At(room, g);
#pragma unroll
      for (int t = 0; t < kTerms; ++t) {
        const Group q = rows_.At(target[t], g);
        Component<float> of_group[kClusterGroup];
#pragma unroll
        for (int i = 0; i < kClusterGroup; ++i) {
          of_group[i] =
              entries[t].template At<kKind>(q.value[i], z.value[i], p.value[i]);
        }
        running[t].Take(of_group, entries[t].clip);
#pragma unroll
        for (int i = 0; i < kClusterGroup; ++i) {
          pull.value[i] += entries[t].weight * of_group[i].pull;
        }
      }
      if (args_.with_gradient) rows_.At(room, g) = pull;
      if (leaves_probabilities) rows_.At(student, g) = p;
    }
#pragma unroll
    for (int t = 0; t < kTerms; ++t) {
      BringSum(
          terms[t],
          {ButterflySum<kWarp>(running[t].clipped),
           ButterflySum<kWarp>(running[t].unclipped()),
           ButterflySum<kWarp>(running[t].mass),
           __any_sync(kAllLanes, running[t].any_clipped) != 0 ? 1.0 : 0.0});
    }
  }

  __device__ void WriteSums() const {
    if (exchange_.rank() != 0 || First() >= args_.num_terms) return;
    const SumPart& total = shared_.totals[First()];
    const float weight = shared_.terms[First()].weight;
    DivergenceTokenSums sums;
    sums.clipped = total.clipped * weight;
    sums.unclipped = total.unclipped * weight;
    sums.mass = total.mass;
    sums.any_clipped = total.any_clipped != 0;
    args_.sums[token_ * args_.num_terms + First()] = sums;
  }

  // Of the student in a slot, by one thread.
  __device__ StudentOfToken StudentAt(int slot) const {
    StudentOfToken student;
    double mass = 0.0;
    for (int k = 0; k < args_.num_terms; ++k) {
      if (!Counts(k, plan_.given[slot])) continue;
      mass += args_.terms[k].weight * shared_.terms[k].weight *
              shared_.totals[k].mass;
      student.has_terms = true;
    }
    student.mass = static_cast<float>(mass);
    return student;
  }

  template <typename T>
  __device__ void WriteGradients() const {
    if (First() < plan_.num_given) {
      shared_.students[First()] = StudentAt(First());
    }
    __syncthreads();
    for (int slot = 0; slot < plan_.num_given; ++slot) {
      if (args_.sources[plan_.given[slot]].is_student) WriteGradient<T>(slot);
    }
  }

  template <typename T>
  __device__ void WriteGradient(int slot) const {
    const int source = plan_.given[slot];
    const int room = plan_.room[source];
    const StudentOfToken student = shared_.students[slot];
    T* const row = rows_.template GradientRow<T>(args_.sources[source], token_);
    for (int g = First(); g < rows_.num_groups(); g += kClusterThreads) {
      Group gradient = {};
      if (student.has_terms) {
        const Group p = rows_.At(slot, g);
        const Group pull = rows_.At(room, g);
#pragma unroll
        for (int i = 0; i < kClusterGroup; ++i) {
          gradient.value[i] = LogitGradient(
              p.value[i], student.mass, pull.value[i], args_.scale);
        }
      }
      rows_.Store(row, g, gradient);
    }
  }

  const CudaDivergenceArgs& args_;
  const ClusterPlan& plan_;
  SharedState& shared_;
  ClusterExchange exchange_;
  RowSlice rows_;
  int64_t token_ = 0;
};

#endif  // DAPD_HAS_CLUSTERS

}  // namespace dapd
