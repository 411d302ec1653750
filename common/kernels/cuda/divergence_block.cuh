// Computes a token in a block of a cluster (divergence_cluster.h): the sums of
// its terms over the block's part of the rows, and the students' gradients.
#pragma once

#include "common/kernels/cuda/divergence_math.cuh"
#include "common/kernels/cuda/divergence_plan.h"
#include "common/kernels/cuda/divergence_rows.cuh"

namespace dapd {

#ifdef DAPD_HAS_CLUSTERS

// A block of the cluster with the token that it computes.
template <int kWarps, bool kNarrow>
class ClusterBlock : public TokenRows<kWarps, kNarrow> {
 public:
  using TokenRows<kWarps, kNarrow>::TokenRows;

  // Computes sums and gradients from rows whose loads are under way. When it
  // returns, the loads of the rows of `next` are under way, if there is such a
  // token: a thread begins to load a group as soon as it no longer needs the
  // group in its place.
  template <typename T>
  __device__ void Run(int64_t token, int64_t next) {
    token_ = token;
    next_ = next;
    ReadWeights();
    MeasureGiven([this] {
      if (First() < args_.num_terms) PlaceTerm(First());
    });
    for (int d = 0; d < args_.num_derived; ++d) {
      DeriveRow(args_.derived[d], *this);
    }
    AddUpTerms();
    WriteSums();
    if (args_.with_gradient) WriteGradients<T>();
  }

 private:
  using Base = TokenRows<kWarps, kNarrow>;
  using Base::args_;
  using Base::CombineSums;
  using Base::exchange_;
  using Base::First;
  using Base::kThreads;
  using Base::MeasureGiven;
  using Base::plan_;
  using Base::rows_;
  using Base::shared_;
  using Base::token_;
  using Base::WarpOfThread;

  __device__ bool HasNext() const { return next_ < args_.num_tokens; }

  // Runs before the wait for the rows; the barriers after that wait publish the
  // weights.
  __device__ void ReadWeights() const {
    if (First() < args_.num_terms) {
      shared_.terms[First()].weight = TokenWeight(args_.terms[First()], token_);
    }
  }

  __device__ bool Counts(int term, int student) const {
    return args_.terms[term].student == student &&
           shared_.terms[term].weight != 0.0F;
  }

  // One thread finds the place of a term among the terms of its student.
  __device__ void PlaceTerm(int k) const {
    const int student = args_.terms[k].student;
    TermOfToken& term = shared_.terms[k];
    term.with = TermOfToken::kNone;
    term.is_first = true;
    int alone = -1;  // the last term that may still be added up with another
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
    if (args_.num_terms == 0) {
      LoadFree();
    } else {
      CombineSums(args_.num_terms, [this] { LoadFree(); });
    }
  }

  // Begins to load the next token's rows into the free slots. Later waits are
  // for the groups of its last row, which complete after all loads that began
  // before.
  __device__ void LoadFree() const {
    if (!HasNext()) return;
    for (int i = 0; i < plan_.num_free; ++i) {
      const int slot = plan_.free[i];
      const void* const row = rows_.RowFrom(slot, next_);
      const bool is_last = plan_.last_student < 0 && i + 1 == plan_.num_free;
      for (int g = First(); g < rows_.num_groups(); g += kThreads) {
        rows_.LoadGroup(row, slot, g);
        if (is_last) __pipeline_commit();
      }
    }
  }

  __device__ void BringSum(int k, const SumPart& of_warp) const {
    if (First() % kWarp == 0) {
      shared_.sums.of_warp[WarpOfThread()][k] = of_warp;
    }
  }

  // Adds up terms of one student and kind.
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
    for (int g = First(); g < rows_.num_groups(); g += kThreads) {
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

  // One thread returns the student in a slot.
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
    T* const row = rows_.template GradientRow<T>(slot, token_);
    const bool has_next = HasNext();
    const bool loads_room = has_next && room < plan_.num_given;
    const bool is_last = slot == plan_.last_student;
    const void* const next = rows_.RowFrom(slot, next_);
    const void* const next_in_room =
        rows_.RowFrom(loads_room ? room : slot, next_);
    for (int g = First(); g < rows_.num_groups(); g += kThreads) {
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
      if (has_next) rows_.LoadGroup(next, slot, g);
      if (loads_room) rows_.LoadGroup(next_in_room, room, g);
      if (has_next && is_last) __pipeline_commit();
      rows_.Store(row, g, gradient);
    }
  }

  int64_t next_ = 0;
};

#endif  // DAPD_HAS_CLUSTERS

}  // namespace dapd
