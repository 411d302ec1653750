#include <cfloat>
#include <cmath>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/divergence_cluster.h"
#include "common/kernels/cuda/divergence_kernel.h"
#include "common/kernels/cuda/divergence_math.cuh"
#include "common/kernels/cuda/divergence_support.cuh"

namespace dapd {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBlocks = 2;  // on a multiprocessor at a time
// Entries of a row that a thread holds in registers at a time.
constexpr int kPerThread = 4;
constexpr int64_t kTile = kThreads * kPerThread;

// Returns the sum over the block in every thread.
__device__ double BlockSum(double value) {
  __shared__ double by_warp[kWarps];
  value = ButterflySum<kWarp>(value);
  __syncthreads();  // the call before has read by_warp
  if (threadIdx.x % kWarp == 0) by_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0.0;
  for (int warp = 0; warp < kWarps; ++warp) sum += by_warp[warp];
  return sum;
}

__device__ float BlockMax(float value) {
  __shared__ float by_warp[kWarps];
  value = ButterflyMax(value);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) by_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  float max = by_warp[0];
  for (int warp = 1; warp < kWarps; ++warp) max = fmaxf(max, by_warp[warp]);
  return max;
}

// Loads a thread's entries of a tile, all of them under way at a time. Entries
// behind the row's end become `rest`.
template <typename Row>
__device__ void LoadTile(Row row,
                         int64_t tile,
                         int64_t size,
                         float rest,
                         float (&values)[kPerThread]) {
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t v = tile + i * kThreads + threadIdx.x;
    values[i] = v < size ? row[v] : rest;
  }
}

template <typename Row>
__device__ RowStatistics Statistics(Row z, int64_t size, float scale) {
  const float factor = scale * kLog2OfE;
  RunningRow running;
  for (int64_t tile = 0; tile < size; tile += kTile) {
    float values[kPerThread];
    LoadTile(z, tile, size, -FLT_MAX, values);
    running.Take(values, factor);
  }
  const float max = BlockMax(running.max);
  return StatisticsOf(
      max,
      BlockSum(static_cast<double>(running.SumBeside(max, factor))),
      scale);
}

// A term over one token and the whole vocabulary.
template <bool kNarrow>
struct Pair {
  LogitRow<kNarrow> target;
  LogitRow<kNarrow> student;
  TermEntries entries;
};

template <DivergenceKind kKind, typename Rows>
__device__ DivergenceTokenSums SumsOf(const Rows& pair, int64_t size) {
  const TermEntries& entries = pair.entries;
  RunningSums running;
  for (int64_t tile = 0; tile < size; tile += kTile) {
    float zq[kPerThread];
    float zp[kPerThread];
    LoadTile(pair.target, tile, size, 0.0F, zq);
    LoadTile(pair.student, tile, size, 0.0F, zp);
    Component<float> here[kPerThread];
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      here[i] = {};
      if (tile + i * kThreads + threadIdx.x >= size) continue;
      here[i] = entries.At<kKind>(zq[i], zp[i], entries.p.ProbabilityOf(zp[i]));
    }
    running.Take(here, entries.clip);
  }
  DivergenceTokenSums sums;
  sums.clipped = BlockSum(running.clipped);
  sums.unclipped = BlockSum(running.unclipped());
  sums.mass = BlockSum(running.mass);
  sums.any_clipped = __syncthreads_or(running.any_clipped) != 0;
  return sums;
}

// A block's token with its rows and their statistics.
template <bool kNarrow>
struct Block {
  static constexpr int kSize = kThreads;
  const CudaDivergenceArgs& args;
  int64_t token;
  RowStatistics* statistics;  // one per source
  LogitRow<kNarrow>* rows;    // one per source
  float* support_pull;        // one number per entry of all supports

  __device__ static double Sum(double value) { return BlockSum(value); }
  __device__ static float Max(float value) { return BlockMax(value); }

  __device__ double LogProbabilityOf(int source, int64_t id) const {
    return static_cast<double>(rows[source][id]) * args.scale -
           statistics[source].log_sum_exp;
  }

  __device__ float LogProbability(int source, int64_t v) const {
    return rows[source][v] * args.scale -
           static_cast<float>(statistics[source].log_sum_exp);
  }

  __device__ void Measure(int source) const {
    const RowStatistics found =
        Statistics(rows[source], args.vocabulary, args.scale);
    if (threadIdx.x == 0) statistics[source] = found;
    __syncthreads();
  }

  __device__ void ReadGivenSources() const {
    if (threadIdx.x < args.num_sources) {
      rows[threadIdx.x] = RowOf<kNarrow>(args.sources[threadIdx.x], token);
    }
    __syncthreads();
    for (int s = 0; s < args.num_sources; ++s) {
      if (!IsDerived(args, s)) Measure(s);
    }
  }

  // Writes the row of a source that is computed entry by entry.
  __device__ void WriteMixture(const DerivedSource& derived) const {
    const auto at = [this](int64_t v) {
      return [this, v](int source) { return LogProbability(source, v); };
    };
    float mean = 0.0F;
    if (derived.recentre) {
      double sum = 0.0;
      for (int64_t v = threadIdx.x; v < args.vocabulary; v += kThreads) {
        sum += DeltaOf<float>(derived, at(v));
      }
      mean = static_cast<float>(BlockSum(sum) /
                                static_cast<double>(args.vocabulary));
    }
    for (int64_t v = threadIdx.x; v < args.vocabulary; v += kThreads) {
      rows[derived.source].first[v] =
          DerivedEntry<float>(derived, at(v), mean, FloatMath{}) / args.scale;
    }
    __syncthreads();
  }

  __device__ void WriteOneHot(const DerivedSource& derived) const {
    const int64_t id = derived.ids[token];
    const float rest = kOneHotRest / args.scale;
    for (int64_t v = threadIdx.x; v < args.vocabulary; v += kThreads) {
      rows[derived.source].first[v] = v == id ? 0.0F : rest;
    }
    __syncthreads();
  }

  __device__ void Route(const DerivedSource& derived) const {
    if (threadIdx.x == 0) {
      const int taken = derived.TakenBy(token);
      rows[derived.source] = rows[taken];
      statistics[derived.source] = statistics[taken];
    }
    __syncthreads();
  }

  __device__ void WriteLogprob(int source) const {
    const DivergenceSource& from = args.sources[source];
    if (from.ids == nullptr) return;
    const double log_sum_exp =
        Statistics(rows[source], args.vocabulary, 1.0F).log_sum_exp;
    if (threadIdx.x == 0) {
      from.logprobs[token] = static_cast<float>(
          static_cast<double>(rows[source][from.ids[token]]) - log_sum_exp);
    }
  }

  __device__ Pair<kNarrow> PairOf(const DivergenceTerm& term) const {
    return {rows[term.target],
            rows[term.student],
            EntriesOf(term,
                      statistics[term.target],
                      statistics[term.student],
                      args.scale,
                      TokenWeight(term, token))};
  }

  __device__ DivergenceTokenSums SumsOfPair(const DivergenceTerm& term) const {
    return WithKind(term.kind, [&]<DivergenceKind kKind>() {
      return SumsOf<kKind>(PairOf(term), args.vocabulary);
    });
  }

  __device__ DivergenceTokenSums SumsOfTerm(const DivergenceTerm& term,
                                            float* pull) const {
    const float weight = TokenWeight(term, token);
    if (weight == 0.0F) return {};
    DivergenceTokenSums sums = term.support == nullptr
                                   ? SumsOfPair(term)
                                   : SumsOfSupport(*this, term, pull);
    sums.clipped *= weight;
    sums.unclipped *= weight;
    return sums;
  }

  __device__ bool IsOf(const DivergenceTerm& term, int student) const {
    return term.student == student && TokenWeight(term, token) != 0.0F;
  }
};

// Adds a term's pull at a tile's entries. All threads of a block take the same
// branches.
__device__ void AddPulls(const TermEntries& entries,
                         const float (&zq)[kPerThread],
                         const float (&zp)[kPerThread],
                         const float (&p)[kPerThread],
                         float (&pull)[kPerThread]) {
  WithKind(entries.kind, [&]<DivergenceKind kKind>() {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const Component<float> entry = entries.At<kKind>(zq[i], zp[i], p[i]);
      pull[i] += entries.weight *
                 ClipComponent(entry.component, entry.pull, entries.clip).pull;
    }
  });
}

// Replaces a student's logits by their gradient, tile by tile. All reads of a
// tile come before its writes, and a bfloat16 overwrites only floats that were
// read before.
template <typename T, bool kNarrow>
__device__ void WriteGradient(LogitRow<kNarrow> z,
                              const RowStatistics& statistics,
                              const Pair<kNarrow>* pairs,
                              int num_pairs,
                              double mass,
                              int64_t size,
                              float scale) {
  T* out = reinterpret_cast<T*>(z.first);
  const RowEntries row = EntriesOfRow(statistics, scale);
  for (int64_t tile = 0; tile < size; tile += kTile) {
    float values[kPerThread];
    float p[kPerThread];
    float pull[kPerThread] = {};
    LoadTile(z, tile, size, 0.0F, values);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      p[i] = row.ProbabilityOf(values[i]);
    }
    for (int k = 0; k < num_pairs; ++k) {
      float zq[kPerThread];
      LoadTile(pairs[k].target, tile, size, 0.0F, zq);
      AddPulls(pairs[k].entries, zq, values, p, pull);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int64_t v = tile + i * kThreads + threadIdx.x;
      if (v < size) {
        out[v] = FromFloat<T>(
            LogitGradient(p[i], static_cast<float>(mass), pull[i], scale));
      }
    }
  }
  __syncthreads();
}

template <typename T, bool kNarrow>
__global__ __launch_bounds__(kThreads, kBlocks) void DivergenceKernel(
    const __grid_constant__ CudaDivergenceArgs args) {
  __shared__ RowStatistics statistics[kCudaMaxSources];
  __shared__ LogitRow<kNarrow> rows[kCudaMaxSources];
  __shared__ float support_pull[kCudaMaxSupport];
  __shared__ double masses[kCudaMaxTerms];
  __shared__ Pair<kNarrow> pairs[kCudaMaxTerms];
  const int64_t token = blockIdx.x;
  const Block<kNarrow> block{args, token, statistics, rows, support_pull};
  block.ReadGivenSources();
  for (int d = 0; d < args.num_derived; ++d) DeriveRow(args.derived[d], block);
  for (int s = 0; s < args.num_sources; ++s) block.WriteLogprob(s);
  float* pull = support_pull;
  for (int k = 0; k < args.num_terms; ++k) {
    const DivergenceTokenSums sums = block.SumsOfTerm(args.terms[k], pull);
    pull += args.terms[k].support_size;
    if (threadIdx.x == 0) {
      args.sums[token * args.num_terms + k] = sums;
      masses[k] = sums.mass;
    }
  }
  if (!args.with_gradient) return;
  for (int s = 0; s < args.num_sources; ++s) {
    if (!args.sources[s].is_student) continue;
    __syncthreads();  // masses are written, the rows of the earlier pairs are
                      // read
    int num_pairs = 0;
    double mass = 0.0;
    for (int k = 0; k < args.num_terms; ++k) {
      const DivergenceTerm& term = args.terms[k];
      if (!block.IsOf(term, s)) continue;
      mass += term.weight * TokenWeight(term, token) * masses[k];
      if (term.support != nullptr) continue;
      if (threadIdx.x == 0) pairs[num_pairs] = block.PairOf(term);
      ++num_pairs;
    }
    __syncthreads();
    WriteGradient<T>(rows[s],
                     statistics[s],
                     pairs,
                     num_pairs,
                     mass,
                     args.vocabulary,
                     args.scale);
    AddSupports<T>(block, s);
  }
}

}  // namespace

extern "C" int DapdCudaDivergence(const CudaDivergenceArgs* args,
                                  void* stream) {
  if (args->num_tokens == 0) return 0;
  // The gradient takes the place of the logits and must have room there.
  if (HasNarrow(*args) && args->gradient != CudaNumber::kBFloat16) {
    return static_cast<int>(cudaErrorInvalidValue);
  }
  if (const std::optional<int> launched =
          LaunchDivergenceClusters(*args, stream)) {
    return *launched;
  }
  const auto launch = [&](auto* kernel) {
    kernel<<<static_cast<unsigned>(args->num_tokens),
             kThreads,
             0,
             static_cast<cudaStream_t>(stream)>>>(*args);
    return static_cast<int>(cudaGetLastError());
  };
  if (args->gradient == CudaNumber::kFloat32) {
    return launch(DivergenceKernel<float, false>);
  }
  return HasNarrow(*args) ? launch(DivergenceKernel<BFloat16, true>)
                          : launch(DivergenceKernel<BFloat16, false>);
}

extern "C" int64_t DapdCudaDivergenceTokens(const CudaDivergenceArgs* args) {
  if (const int clusters = DivergenceClusters(*args); clusters > 0) {
    return clusters;
  }
  const std::optional<int> multiprocessors =
      DeviceAttribute(cudaDevAttrMultiProcessorCount);
  return multiprocessors.has_value() ? int64_t{*multiprocessors} * kBlocks : 1;
}

}  // namespace dapd
