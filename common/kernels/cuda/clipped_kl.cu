#include <cfloat>

#include "common/kernels/cuda/clipped_kl.h"
#include "common/kernels/cuda/device.cuh"

namespace dapd {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
// Entries of a row that a thread has in registers at a time.
constexpr int kPerThread = 4;
constexpr int64_t kTile = kThreads * kPerThread;

struct Exp {
  __device__ float operator()(float x) const { return expf(x); }
};

// The sum over the block, in every thread.
__device__ double BlockSum(double value) {
  __shared__ double by_warp[kWarps];
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
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

__device__ RowStatistics Statistics(const float* z, int64_t size, float scale) {
  float max = -FLT_MAX;
  float sum = 0.0F;
  for (int64_t v = threadIdx.x; v < size; v += kThreads) {
    const float value = z[v];
    if (value > max) {
      sum *= ScaledExp(max, value, scale, Exp{});
      max = value;
    }
    sum += ScaledExp(value, max, scale, Exp{});
  }
  const float row_max = BlockMax(max);
  const double row_sum = BlockSum(
      static_cast<double>(sum * ScaledExp(max, row_max, scale, Exp{})));
  return {row_max,
          static_cast<float>(1.0 / row_sum),
          static_cast<double>(row_max) * scale + log(row_sum)};
}

// A term over one token.
struct Pair {
  const float* teacher;
  const float* student;
  float teacher_max;
  float teacher_inverse_sum;
  float lse_difference;
  float clip;
  float scale;
  float weight;

  __device__ ClippedEntry<float> At(float zp, int64_t v) const {
    const float zq = teacher[v];
    const float q =
        ScaledExp(zq, teacher_max, scale, Exp{}) * teacher_inverse_sum;
    return ClipEntry(q, LogRatio(zq, zp, scale, lse_difference), clip);
  }
};

__device__ KlSums SumsOf(const Pair& pair, int64_t size) {
  float clipped = 0.0F;
  float unclipped = 0.0F;
  float kept = 0.0F;
  bool any = false;
  for (int64_t v = threadIdx.x; v < size; v += kThreads) {
    const ClippedEntry<float> entry = pair.At(pair.student[v], v);
    clipped += entry.clipped;
    unclipped += entry.component;
    kept += entry.kept_q;
    any |= entry.component > pair.clip;
  }
  KlSums sums;
  sums.clipped = BlockSum(clipped);
  sums.unclipped = BlockSum(unclipped);
  sums.kept_mass = BlockSum(kept);
  sums.any_clipped = __syncthreads_or(any) != 0;
  return sums;
}

// Replaces a student's logits by their gradient. Tile by tile, all reads of a
// tile before its writes: a bfloat16 lands on floats that were read before.
template <typename T>
__device__ void WriteGradient(float* z,
                              const RowStatistics& statistics,
                              const Pair* pairs,
                              int num_pairs,
                              double mass,
                              int64_t size,
                              float scale) {
  T* out = reinterpret_cast<T*>(z);
  for (int64_t tile = 0; tile < size; tile += kTile) {
    float gradient[kPerThread];
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int64_t v = tile + i * kThreads + threadIdx.x;
      if (v >= size) continue;
      float pull = 0.0F;
      for (int k = 0; k < num_pairs; ++k) {
        pull += pairs[k].weight * pairs[k].At(z[v], v).kept_q;
      }
      const float p = ScaledExp(z[v], statistics.max, scale, Exp{}) *
                      statistics.inverse_sum;
      gradient[i] = LogitGradient(p, static_cast<float>(mass), pull, scale);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int64_t v = tile + i * kThreads + threadIdx.x;
      if (v < size) out[v] = FromFloat<T>(gradient[i]);
    }
  }
}

template <typename T>
__global__ __launch_bounds__(kThreads) void ClippedKlKernel(
    CudaClippedKlArgs args) {
  __shared__ RowStatistics statistics[kCudaKlMaxSources];
  __shared__ double kept_mass[kCudaKlMaxTerms];
  __shared__ Pair pairs[kCudaKlMaxTerms];
  const int64_t token = blockIdx.x;
  const auto row = [&](int source) {
    return args.sources[source].logits + token * args.sources[source].stride;
  };
  const auto pair_of = [&](const KlTerm& term) {
    const RowStatistics& q = statistics[term.teacher];
    const double difference =
        q.log_sum_exp - statistics[term.student].log_sum_exp;
    return Pair{row(term.teacher),
                row(term.student),
                q.max,
                q.inverse_sum,
                static_cast<float>(difference),
                term.clip,
                args.scale,
                term.weight};
  };
  for (int s = 0; s < args.num_sources; ++s) {
    const RowStatistics found = Statistics(row(s), args.vocabulary, args.scale);
    if (threadIdx.x == 0) statistics[s] = found;
  }
  __syncthreads();
  for (int k = 0; k < args.num_terms; ++k) {
    const KlSums sums = SumsOf(pair_of(args.terms[k]), args.vocabulary);
    if (threadIdx.x == 0) {
      args.sums[token * args.num_terms + k] = sums;
      kept_mass[k] = sums.kept_mass;
    }
  }
  if (!args.with_gradient) return;
  for (int s = 0; s < args.num_sources; ++s) {
    if (!args.sources[s].is_student) continue;
    __syncthreads();  // kept_mass is written, the pairs before are read
    int num_pairs = 0;
    double mass = 0.0;
    for (int k = 0; k < args.num_terms; ++k) {
      const KlTerm& term = args.terms[k];
      if (term.student != s) continue;
      mass += term.weight * kept_mass[k];
      if (threadIdx.x == 0) pairs[num_pairs] = pair_of(term);
      ++num_pairs;
    }
    __syncthreads();
    WriteGradient<T>(row(s),
                     statistics[s],
                     pairs,
                     num_pairs,
                     mass,
                     args.vocabulary,
                     args.scale);
  }
}

}  // namespace

extern "C" int DapdCudaClippedKl(const CudaClippedKlArgs* args, void* stream) {
  if (args->num_tokens == 0) return 0;
  return LaunchFor(args->gradient, [&](auto number) {
    ClippedKlKernel<decltype(number)>
        <<<static_cast<unsigned>(args->num_tokens),
           kThreads,
           0,
           static_cast<cudaStream_t>(stream)>>>(*args);
  });
}

}  // namespace dapd
