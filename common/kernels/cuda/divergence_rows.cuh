// Loads and measures the rows of a block's token (divergence_cluster.h), and
// writes the rows that are derived from others (DeriveRow).
#pragma once

#include "common/kernels/cuda/divergence_exchange.cuh"
#include "common/kernels/cuda/divergence_math.cuh"
#include "common/kernels/cuda/divergence_plan.h"
#include "common/kernels/cuda/divergence_slice.cuh"

namespace dapd {

// A term at the block's token. Two consecutive terms of one student and one
// kind are added up together, because they use the same probabilities of the
// student; terms with weight 0 are skipped.
struct TermOfToken {
  static constexpr int kNone = -1;
  static constexpr int kEarlier = -2;

  float weight = 0.0F;  // the token's weight; 0: the term is skipped
  // The index of the later term that is added up with this term; kNone if there
  // is none; kEarlier if an earlier term takes this term along.
  int with = kNone;
  // True for the first and for the last terms of their student.
  bool is_first = false;
  bool is_last = false;
};

// A student at the block's token.
struct StudentOfToken {
  float mass = 0.0F;  // sum over its terms, with their weights
  bool has_terms = false;
};

// Shared memory of a block's threads beside its rows.
template <int kWarps>
struct SharedState {
  WarpParts<kWarps, RowPart, kClusterMaxMeasures> rows;
  WarpParts<kWarps, SumPart, kClusterMaxTerms> sums;
  Inbox inboxes[kInboxes];
  RowStatistics measured[kClusterMaxMeasures];
  TermOfToken terms[kClusterMaxTerms];
  SumPart totals[kClusterMaxTerms];
  StudentOfToken students[kClusterMaxGiven];  // by slot
  RowStatistics statistics[kCudaMaxSources];
  int slot[kCudaMaxSources];  // for this token: a routed source has the slot of
                              // another
};

#ifdef DAPD_HAS_CLUSTERS

// Calls visit.operator()<count>(): with a constant count, data of that many
// rows stays in registers.
template <int kCount = 1, typename Visit>
__device__ inline void WithCount(int count, const Visit& visit) {
  if constexpr (kCount < kClusterMaxGiven) {
    if (count > kCount) return WithCount<kCount + 1>(count, visit);
  }
  visit.template operator()<kCount>();
}

// A block's part of the rows of its current token; the block has kWarps warps.
template <int kWarps, bool kNarrow>
class TokenRows {
 public:
  __device__ TokenRows(const CudaDivergenceArgs& args,
                       const ClusterPlan& plan,
                       float* rows,
                       SharedState<kWarps>& shared)
      : args_(args),
        plan_(plan),
        shared_(shared),
        exchange_(plan.blocks, shared.inboxes),
        rows_(args, plan, exchange_.rank(), rows) {}

  // Begins to load a token's rows.
  __device__ void Load(int64_t token) const { rows_.Load(token); }

  __device__ void Open() const { exchange_.Open(); }

  // Returns a function from source to log-probability for entry i of group g.
  __device__ auto LogProbabilitiesAt(int g, int i) const {
    return [this, g, i](int source) {
      return rows_.At(shared_.slot[source], g).value[i] * args_.scale -
             static_cast<float>(shared_.statistics[source].log_sum_exp);
    };
  }

  // The next four functions are the interface that DeriveRow calls.
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
    for (int g = First(); g < rows_.num_groups(); g += kThreads) {
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
    for (int g = First(); g < rows_.num_groups(); g += kThreads) {
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

 protected:
  static constexpr int kThreads = kWarps * kWarp;

  __device__ static int First() { return static_cast<int>(threadIdx.x); }
  __device__ int WarpOfThread() const { return First() / kWarp; }

  // Computes the statistics of all rows whose loads are under way, as they
  // arrive, and the log-probabilities that sources with `ids` ask for. Calls
  // beside() in all threads, before its last barrier.
  template <typename Beside>
  __device__ void MeasureGiven(const Beside& beside) {
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
    beside();
    WriteLogprobs();
    __syncthreads();
  }

  // Calls beside() in all threads while the sums are under way.
  template <typename Beside>
  __device__ void CombineSums(int count, const Beside& beside) {
    exchange_.Combine(
        shared_.sums,
        count,
        [](int) { return 0.0F; },
        [&](int i, const SumPart& part) { shared_.totals[i] = part; },
        beside);
  }

  const CudaDivergenceArgs& args_;
  const ClusterPlan& plan_;
  SharedState<kWarps>& shared_;
  ClusterExchange<kWarps> exchange_;
  RowSlice<kThreads, kNarrow> rows_;
  int64_t token_ = 0;

 private:
  // Stores a thread's statistics as input number `i` of CombineRows.
  __device__ void Bring(int i, const RunningRow& running, float scale) {
    const float factor = scale * kLog2OfE;
    const float most = ButterflyMax(running.max);
    const float sum = ButterflySum<kWarp>(running.SumBeside(most, factor));
    if (First() % kWarp == 0) {
      shared_.rows.of_warp[WarpOfThread()][i] = {most, sum};
    }
  }

  // scale_of(i) must be the scale that Bring got for `i`.
  template <typename Scale>
  __device__ void CombineRows(int count, const Scale& scale_of) {
    exchange_.Combine(
        shared_.rows,
        count,
        [&](int i) { return scale_of(i) * kLog2OfE; },
        [&](int i, const RowPart& part) {
          shared_.measured[i] = StatisticsOf(part.max, part.sum, scale_of(i));
        },
        [] {});
  }

  __device__ RunningRow MeasureRow(int slot, float scale) const {
    RunningRow running;
    for (int g = First(); g < rows_.num_groups(); g += kThreads) {
      const Group row = rows_.At(slot, g);
      running.Take(row.value, scale * kLog2OfE);
    }
    return running;
  }

  // Computes the statistics of the loaded rows, group by group as they arrive.
  template <int kGiven>
  __device__ void BringGiven() {
    // Number of groups that the first waits leave under way. It is a constant
    // because a wait for a number unknown to the compiler becomes a long chain
    // of branches.
    constexpr int kLeftFirst = 2;
    RunningRow running[kGiven];
    const float factor = args_.scale * kLog2OfE;
    int under_way = (rows_.num_groups() - First() + kThreads - 1) / kThreads;
    for (int g = First(); g < rows_.num_groups(); g += kThreads) {
      --under_way;
      __pipeline_wait_prior(under_way >= kLeftFirst ? kLeftFirst : 0);
#pragma unroll
      for (int s = 0; s < kGiven; ++s) {
        // The copy makes it one load.
        const Group row = rows_.Arrived(s, g);
        running[s].Take(row.value, factor);
      }
    }
#pragma unroll
    for (int s = 0; s < kGiven; ++s) Bring(s, running[s], args_.scale);
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
    for (int g = First(); g < rows_.num_groups(); g += kThreads) {
      for (int i = 0; i < kClusterGroup && g * kClusterGroup + i < rows_.size();
           ++i) {
        sum += DeltaOf<float>(derived, LogProbabilitiesAt(g, i));
      }
    }
    sum = ButterflySum<kWarp>(sum);
    if (First() % kWarp == 0) {
      shared_.sums.of_warp[WarpOfThread()][0] = {sum, 0.0, 0.0, 0};
    }
    CombineSums(1, [] {});
    return static_cast<float>(shared_.totals[0].clipped /
                              static_cast<double>(args_.vocabulary));
  }
};

#endif  // DAPD_HAS_CLUSTERS

}  // namespace dapd
