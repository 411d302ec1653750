#include <cuda_pipeline.h>

#include <algorithm>
#include <cfloat>

#include "common/kernels/cuda/divergence_cluster.h"
#include "common/kernels/cuda/divergence_math.cuh"

// Clusters are sm_90's; for what is older the kernel is compiled empty.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define DAPD_HAS_CLUSTERS 1
#endif

namespace dapd {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kGroup = 4;  // entries of a row that a thread takes at a time

// What fills a row's last group: it has no probability and differs from no
// other row's.
[[maybe_unused]] constexpr float kPad = -1e30F;

// A part of a row's statistics: of a lane, a warp, a block.
struct RowPart {
  double max = -FLT_MAX;
  double sum = 0.0;  // of exp(scale (z - max))
};

// A part of a term's sums.
struct SumPart {
  double clipped = 0.0;
  double unclipped = 0.0;
  double mass = 0.0;
  int64_t any_clipped = 0;
};

// What blocks tell each other.
template <typename Part, int kCount>
struct Exchange {
  Part of_warp[kWarps][kCount];
  // Written by the cluster's blocks, in turns: the other half may still be
  // read.
  Part inbox[2][kClusterMaxBlocks][kCount];
};

struct SharedState {
  Exchange<RowPart, kClusterMaxMeasures> rows;
  Exchange<SumPart, kClusterMaxTerms> sums;
  RowStatistics measured[kClusterMaxMeasures];
  SumPart totals[kClusterMaxTerms];
  RowStatistics statistics[kCudaMaxSources];
  int slot[kCudaMaxSources];  // of this token: a routed source has another's
};

#ifdef DAPD_HAS_CLUSTERS

__device__ float BesideMaximum(double max, double most, float factor) {
  return ScaledExp(
      static_cast<float>(max), static_cast<float>(most), factor, Exp2Of{});
}

// `factor`: the scale times kLog2OfE.
__device__ void AddPart(const RowPart& other, float factor, RowPart* part) {
  const double most = part->max > other.max ? part->max : other.max;
  part->sum = part->sum * BesideMaximum(part->max, most, factor) +
              other.sum * BesideMaximum(other.max, most, factor);
  part->max = most;
}

__device__ void AddPart(const SumPart& other, float /*factor*/, SumPart* part) {
  part->clipped += other.clipped;
  part->unclipped += other.unclipped;
  part->mass += other.mass;
  part->any_clipped |= other.any_clipped;
}

__device__ void ClusterSync() {
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}

struct alignas(16) Group {
  float value[kGroup];
};

// A block of the cluster, and the token it computes.
class ClusterBlock {
 public:
  __device__ ClusterBlock(const CudaDivergenceArgs& args,
                          const ClusterPlan& plan,
                          float* rows,
                          SharedState& shared)
      : args_(args),
        plan_(plan),
        rows_(rows),
        shared_(shared),
        rank_(static_cast<int>(__clusterRelativeBlockRank())) {
    begin_ = rank_ * plan.slice;
    const int64_t left = args.vocabulary - begin_;
    size_ = static_cast<int>(left < 0            ? 0
                             : left < plan.slice ? left
                                                 : plan.slice);
    groups_ = (size_ + kGroup - 1) / kGroup;
  }

  // Begins to load a token's rows.
  __device__ void Load(int64_t token) const {
    for (int g = First(); g < groups_; g += kThreads) LoadGroup(token, g);
  }

  // From rows that are under way to sums and gradients. Of `next`, if there is
  // such a token, the rows are under way behind it.
  template <typename T>
  __device__ void Run(int64_t token, int64_t next) {
    token_ = token;
    MeasureGiven();
    for (int d = 0; d < args_.num_derived; ++d) {
      DeriveRow(args_.derived[d], *this);
    }
    AddUpTerms();
    WriteSums();
    if (args_.with_gradient) {
      WriteGradients<T>(next);
    } else if (next < args_.num_tokens) {
      Load(next);
    }
  }

  // Of entry i of group g, by source.
  __device__ auto LogProbabilitiesAt(int g, int i) const {
    return [this, g, i](int source) {
      return GroupAt(shared_.slot[source], g).value[i] * args_.scale -
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
    for (int g = First(); g < groups_; g += kThreads) {
      Group row;
      for (int i = 0; i < kGroup; ++i) {
        row.value[i] =
            g * kGroup + i < size_
                ? DerivedEntry<float>(
                      derived, LogProbabilitiesAt(g, i), mean, FloatMath{}) /
                      args_.scale
                : kPad;
      }
      GroupAt(slot, g) = row;
    }
  }

  __device__ void WriteOneHot(const DerivedSource& derived) const {
    const int slot = plan_.slot[derived.source];
    const int64_t id = derived.ids[token_] - begin_;
    const float rest = kOneHotRest / args_.scale;
    for (int g = First(); g < groups_; g += kThreads) {
      Group row;
      for (int i = 0; i < kGroup; ++i) {
        const int at = g * kGroup + i;
        row.value[i] = at >= size_ ? kPad : at == id ? 0.0F : rest;
      }
      GroupAt(slot, g) = row;
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

  __device__ float* Row(int slot) const { return rows_ + slot * plan_.slice; }
  __device__ Group& GroupAt(int slot, int g) const {
    return *reinterpret_cast<Group*>(Row(slot) + g * kGroup);
  }

  __device__ void LoadGroup(int64_t token, int g) const {
    for (int s = 0; s < plan_.num_given; ++s) {
      const DivergenceSource& source = args_.sources[plan_.given[s]];
      const float* from =
          source.logits + token * source.stride + begin_ + g * kGroup;
      float* to = GroupAt(s, g).value;
      if (plan_.wide) {
        __pipeline_memcpy_async(to, from, sizeof(Group));
        continue;
      }
      for (int i = 0; i < kGroup; ++i) {
        if (g * kGroup + i < size_) {
          __pipeline_memcpy_async(to + i, from + i, sizeof(float));
        } else {
          to[i] = kPad;
        }
      }
    }
    __pipeline_commit();
  }

  // All blocks' parts of `count` numbers, of which every block has brought its
  // warps' in exchange.of_warp; read(i, part) in thread i.
  template <typename Part, int kCount, typename Factor, typename Read>
  __device__ void Combine(Exchange<Part, kCount>& exchange,
                          int count,
                          const Factor& factor_of,
                          const Read& read) {
    __syncthreads();
    const int blocks = plan_.blocks;
    for (int i = First(); i < count * blocks; i += kThreads) {
      const int of = i % count;
      Part part = exchange.of_warp[0][of];
      for (int warp = 1; warp < kWarps; ++warp) {
        AddPart(exchange.of_warp[warp][of], factor_of(of), &part);
      }
      auto* inbox = static_cast<Part*>(__cluster_map_shared_rank(
          &exchange.inbox[turn_][rank_][of], static_cast<unsigned>(i / count)));
      *inbox = part;
    }
    ClusterSync();
    if (First() < count) {
      const int of = First();
      Part part = exchange.inbox[turn_][0][of];
      for (int block = 1; block < blocks; ++block) {
        AddPart(exchange.inbox[turn_][block][of], factor_of(of), &part);
      }
      read(of, part);
    }
    turn_ ^= 1;
    __syncthreads();
  }

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
    Combine(
        shared_.rows,
        count,
        [&](int i) { return scale_of(i) * kLog2OfE; },
        [&](int i, const RowPart& part) {
          shared_.measured[i] =
              StatisticsOf(static_cast<float>(part.max), part.sum, scale_of(i));
        });
  }

  __device__ RunningRow MeasureRow(int slot, float scale) const {
    RunningRow running;
    for (int g = First(); g < groups_; g += kThreads) {
      running.Take(GroupAt(slot, g).value, scale * kLog2OfE);
    }
    return running;
  }

  // Statistics of all rows that are loaded, group by group as they arrive, and
  // the log-probabilities that are asked for.
  __device__ void MeasureGiven() {
    RunningRow running[kClusterMaxGiven];
    const float factor = args_.scale * kLog2OfE;
    int under_way = (groups_ - First() + kThreads - 1) / kThreads;
    for (int g = First(); g < groups_; g += kThreads) {
      __pipeline_wait_prior(static_cast<size_t>(--under_way));
#pragma unroll
      for (int s = 0; s < kClusterMaxGiven; ++s) {
        if (s < plan_.num_given) running[s].Take(GroupAt(s, g).value, factor);
      }
    }
#pragma unroll
    for (int s = 0; s < kClusterMaxGiven; ++s) {
      if (s < plan_.num_given) Bring(s, running[s], args_.scale);
    }
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
      const int64_t at = source.ids[token_] - begin_;
      if (at < 0 || at >= size_) continue;
      source.logprobs[token_] =
          static_cast<float>(static_cast<double>(Row(s)[at]) - log_sum_exp);
    }
  }

  __device__ float MeanDelta(const DerivedSource& derived) {
    float sum = 0.0F;
    for (int g = First(); g < groups_; g += kThreads) {
      for (int i = 0; i < kGroup && g * kGroup + i < size_; ++i) {
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
    Combine(
        shared_.sums,
        count,
        [](int) { return 0.0F; },
        [&](int i, const SumPart& part) { shared_.totals[i] = part; });
  }

  __device__ bool IsActive(int term, int student) const {
    return args_.terms[term].student == student &&
           TokenWeight(args_.terms[term], token_) != 0.0F;
  }

  // Whether another term of the student counts for this token among [from, to).
  __device__ bool HasActive(int student, int from, int to) const {
    for (int k = from; k < to; ++k) {
      if (IsActive(k, student)) return true;
    }
    return false;
  }

  __device__ void AddUpTerms() {
    for (int k = 0; k < args_.num_terms; ++k) {
      const DivergenceTerm& term = args_.terms[k];
      SumPart part;
      if (TokenWeight(term, token_) != 0.0F) part = AddUpTerm(k, term);
      if (First() % kWarp == 0) shared_.sums.of_warp[WarpOfThread()][k] = part;
    }
    CombineSums(args_.num_terms);
  }

  // The warp's part, in all its lanes.
  __device__ SumPart AddUpTerm(int k, const DivergenceTerm& term) const {
    const TermEntries entries = EntriesOf(term,
                                          shared_.statistics[term.target],
                                          shared_.statistics[term.student],
                                          args_.scale,
                                          token_);
    const int target = shared_.slot[term.target];
    const int student = plan_.slot[term.student];
    const int room = plan_.room[term.student];
    const bool is_first = !HasActive(term.student, 0, k);
    const bool is_last = !HasActive(term.student, k + 1, args_.num_terms);
    RunningSums running;
    for (int g = First(); g < groups_; g += kThreads) {
      const Group q = GroupAt(target, g);
      Group z = GroupAt(student, g);
      Group pull;
      if (!is_first) pull = GroupAt(room, g);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const float p = entries.ProbabilityOf(z.value[i], entries.p);
        const ClippedEntry<float> entry = entries.At(q.value[i], z.value[i], p);
        running.Take(entry, entries.clip);
        const float own = entries.weight * entry.pull;
        pull.value[i] = is_first ? own : pull.value[i] + own;
        z.value[i] = p;
      }
      if (!args_.with_gradient) continue;
      GroupAt(room, g) = pull;
      if (is_last) GroupAt(student, g) = z;
    }
    return {ButterflySum<kWarp>(running.clipped),
            ButterflySum<kWarp>(running.unclipped),
            ButterflySum<kWarp>(running.mass),
            __any_sync(kAllLanes, running.any_clipped ? 1 : 0)};
  }

  __device__ void WriteSums() const {
    if (rank_ != 0 || First() >= args_.num_terms) return;
    const SumPart& total = shared_.totals[First()];
    const float weight = TokenWeight(args_.terms[First()], token_);
    DivergenceTokenSums sums;
    sums.clipped = total.clipped * weight;
    sums.unclipped = total.unclipped * weight;
    sums.mass = total.mass;
    sums.any_clipped = total.any_clipped != 0;
    args_.sums[token_ * args_.num_terms + First()] = sums;
  }

  // The sum of its terms' masses with their weights.
  __device__ float MassOf(int student) const {
    double mass = 0.0;
    for (int k = 0; k < args_.num_terms; ++k) {
      if (!IsActive(k, student)) continue;
      mass += args_.terms[k].weight * TokenWeight(args_.terms[k], token_) *
              shared_.totals[k].mass;
    }
    return static_cast<float>(mass);
  }

  // Of a group, behind which its entries of the next token are fetched.
  template <typename T>
  __device__ void WriteGradients(int64_t next) const {
    float masses[kClusterMaxGiven];
    unsigned active = 0;
#pragma unroll
    for (int s = 0; s < kClusterMaxGiven; ++s) {
      masses[s] = 0.0F;
      if (s >= plan_.num_given) continue;
      masses[s] = MassOf(plan_.given[s]);
      if (HasActive(plan_.given[s], 0, args_.num_terms)) active |= 1U << s;
    }
    for (int g = First(); g < groups_; g += kThreads) {
#pragma unroll
      for (int s = 0; s < kClusterMaxGiven; ++s) {
        if (s >= plan_.num_given) continue;
        const int source = plan_.given[s];
        if (!args_.sources[source].is_student) continue;
        Group gradient = {};
        if ((active >> s & 1U) != 0) {
          const Group p = GroupAt(s, g);
          const Group pull = GroupAt(plan_.room[source], g);
#pragma unroll
          for (int i = 0; i < kGroup; ++i) {
            gradient.value[i] = LogitGradient(
                p.value[i], masses[s], pull.value[i], args_.scale);
          }
        }
        Store<T>(args_.sources[source], g, gradient);
      }
      if (next < args_.num_tokens) LoadGroup(next, g);
    }
  }

  template <typename T>
  __device__ void Store(const DivergenceSource& source,
                        int g,
                        const Group& gradient) const {
    T* to = reinterpret_cast<T*>(source.logits + token_ * source.stride) +
            begin_ + g * kGroup;
    if (plan_.wide) {
      struct alignas(kGroup * sizeof(T)) Rounded {
        T value[kGroup];
      } rounded;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        rounded.value[i] = FromFloat<T>(gradient.value[i]);
      }
      *reinterpret_cast<Rounded*>(to) = rounded;
      return;
    }
    for (int i = 0; i < kGroup && g * kGroup + i < size_; ++i) {
      to[i] = FromFloat<T>(gradient.value[i]);
    }
  }

  const CudaDivergenceArgs& args_;
  const ClusterPlan& plan_;
  float* rows_;  // [slots, slice] in shared memory
  SharedState& shared_;
  int rank_;
  int64_t begin_;  // this block's part of the vocabulary
  int size_;
  int groups_;
  int64_t token_ = 0;
  int turn_ = 0;  // which half of an inbox is written next
};

#endif  // DAPD_HAS_CLUSTERS

template <typename T>
__global__ __launch_bounds__(kThreads, 1) void DivergenceInClusters(
    const __grid_constant__ CudaDivergenceArgs args,
    const __grid_constant__ ClusterPlan plan) {
#ifdef DAPD_HAS_CLUSTERS
  extern __shared__ Group dynamic_rows[];  // aligned as a group is
  __shared__ SharedState shared;
  ClusterBlock block(args, plan, dynamic_rows->value, shared);
  const int64_t clusters = gridDim.x / static_cast<unsigned>(plan.blocks);
  int64_t token = blockIdx.x / static_cast<unsigned>(plan.blocks);
  block.Load(token);
  ClusterSync();  // all blocks are there before one writes to another
  for (; token < args.num_tokens; token += clusters) {
    block.template Run<T>(token, token + clusters);
  }
#endif
}

struct Launcher {
  ClusterPlan plan;
  int clusters = 0;  // at a time
};

// A launch with so many clusters; `cluster` has to live as long.
cudaLaunchConfig_t ConfigOf(const ClusterPlan& plan,
                            int clusters,
                            cudaStream_t stream,
                            cudaLaunchAttribute* cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim.x = static_cast<unsigned>(plan.blocks);
  cluster->val.clusterDim.y = 1;
  cluster->val.clusterDim.z = 1;
  return {dim3(static_cast<unsigned>(plan.blocks * clusters)),
          dim3(kThreads),
          static_cast<size_t>(plan.shared_bytes()),
          stream,
          cluster,
          1};
}

// The smallest cluster that has room for a token: more of them are under way at
// a time, of which some load while others compute.
template <typename Kernel>
Launcher ChooseClusters(Kernel* kernel, ClusterPlan plan, int64_t vocabulary) {
  int device = 0;
  int bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bytes,
                             cudaDevAttrMaxSharedMemoryPerBlockOptin,
                             device) != cudaSuccess) {
    return {};
  }
  const int64_t room = bytes - static_cast<int64_t>(sizeof(SharedState));
  if (room <= 0) return {};
  cudaFuncSetAttribute(kernel,
                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(room));
  cudaFuncSetAttribute(
      kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  Launcher chosen;
  for (int blocks = 1; blocks <= kClusterMaxBlocks; blocks *= 2) {
    plan.blocks = blocks;
    plan.slice =
        ((vocabulary + blocks - 1) / blocks + kGroup - 1) / kGroup * kGroup;
    if (plan.shared_bytes() > room) continue;
    cudaLaunchAttribute cluster;
    const cudaLaunchConfig_t config = ConfigOf(plan, 1, nullptr, &cluster);
    int active = 0;
    if (cudaOccupancyMaxActiveClusters(&active, kernel, &config) !=
            cudaSuccess ||
        active == 0) {
      continue;
    }
    chosen = {plan, active};
    break;
  }
  cudaGetLastError();  // a size that the device refused is no launch's error
  return chosen;
}

template <typename T>
Launcher LauncherFor(const CudaDivergenceArgs& args) {
  int device = 0;
  int major = 0;
  const std::optional<ClusterPlan> plan = SlotsOf(args);
  if (!plan.has_value() || cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(
          &major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      major < 9) {
    return {};
  }
  return ChooseClusters(DivergenceInClusters<T>, *plan, args.vocabulary);
}

// Whether nothing reads a target's row behind the term `own`.
bool IsLastReader(const CudaDivergenceArgs& args, int target, int own) {
  if (args.sources[target].is_student) return false;
  for (int k = 0; k < args.num_terms; ++k) {
    if (k != own && args.terms[k].target == target) return false;
  }
  for (int d = 0; d < args.num_derived; ++d) {
    const DerivedSource& derived = args.derived[d];
    if (derived.kind != DerivedSource::Kind::kRouted) continue;
    for (int i = 0; i < derived.num_parts; ++i) {
      if (derived.parts[i] == target) return false;
    }
  }
  return true;
}

// A slot whose row is over when the student's pull needs it, or a new one.
int RoomFor(const CudaDivergenceArgs& args, int student, ClusterPlan* plan) {
  for (int k = 0; k < args.num_terms; ++k) {
    const int target = args.terms[k].target;
    // A later term's row is still to be read where an earlier one adds.
    const bool is_first = std::none_of(
        args.terms, args.terms + k, [student](const DivergenceTerm& term) {
          return term.student == student;
        });
    if (args.terms[k].student == student && is_first &&
        plan->slot[target] >= 0 && IsLastReader(args, target, k)) {
      return plan->slot[target];
    }
  }
  return plan->num_slots++;
}

}  // namespace

std::optional<ClusterPlan> SlotsOf(const CudaDivergenceArgs& args) {
  ClusterPlan plan;
  int measures = 0;
  plan.wide = args.vocabulary % kGroup == 0;
  for (int s = 0; s < args.num_sources; ++s) {
    plan.slot[s] = -1;
    if (IsDerived(args, s)) continue;
    const DivergenceSource& source = args.sources[s];
    if (plan.num_given == kClusterMaxGiven) return std::nullopt;
    plan.given[plan.num_given] = s;
    plan.slot[s] = plan.num_given++;
    measures += source.ids == nullptr ? 1 : 2;
    plan.wide =
        plan.wide && source.stride % kGroup == 0 &&
        reinterpret_cast<uintptr_t>(source.logits) % sizeof(float[4]) == 0;
  }
  plan.num_slots = plan.num_given;
  for (int d = 0; d < args.num_derived; ++d) {
    if (args.derived[d].kind == DerivedSource::Kind::kRouted) continue;
    plan.slot[args.derived[d].source] = plan.num_slots++;
  }
  const bool has_support = std::any_of(
      args.terms, args.terms + args.num_terms, [](const DivergenceTerm& t) {
        return t.support_size > 0;
      });
  if (measures > kClusterMaxMeasures || args.num_terms > kClusterMaxTerms ||
      has_support) {
    return std::nullopt;
  }
  for (int s = 0; s < args.num_sources; ++s) {
    plan.room[s] = -1;
    if (args.sources[s].is_student) plan.room[s] = RoomFor(args, s, &plan);
  }
  return plan;
}

int DivergenceClusters(const CudaDivergenceArgs& args) {
  return args.gradient == CudaNumber::kFloat32
             ? LauncherFor<float>(args).clusters
             : LauncherFor<BFloat16>(args).clusters;
}

std::optional<int> LaunchDivergenceClusters(const CudaDivergenceArgs& args,
                                            void* stream) {
  const auto launch = [&](auto number) -> std::optional<int> {
    using T = decltype(number);
    const Launcher launcher = LauncherFor<T>(args);
    if (launcher.clusters == 0) return std::nullopt;
    const auto clusters =
        static_cast<int>(std::min<int64_t>(launcher.clusters, args.num_tokens));
    cudaLaunchAttribute cluster;
    const cudaLaunchConfig_t config = ConfigOf(
        launcher.plan, clusters, static_cast<cudaStream_t>(stream), &cluster);
    return static_cast<int>(cudaLaunchKernelEx(
        &config, DivergenceInClusters<T>, args, launcher.plan));
  };
  return args.gradient == CudaNumber::kFloat32 ? launch(float{})
                                               : launch(BFloat16{});
}

}  // namespace dapd
