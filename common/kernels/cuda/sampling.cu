#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/sampling.h"
#include "common/kernels/cuda/sampling_by_mass.cuh"
#include "common/kernels/sampling_math.h"

namespace dapd {
namespace {

constexpr int kSliceThreads = 256;
constexpr int kPerThread = 32;
constexpr int kSliceSize = kSliceThreads * kPerThread;
constexpr int kMaxCandidates = 4096;

// The results of the first launch for a slice.
struct Slice {
  float max;
  float known_max;  // over the tokens that may be sampled; -infinity: none
  bool finite;
  double sum;  // of exp(logit - max)
  uint64_t best[kMaxSortedTopK];
};

__host__ __device__ int64_t NumSlices(int64_t vocab) {
  return (vocab + kSliceSize - 1) / kSliceSize;
}

// Returns how many tokens are sorted for a sequence; 0 if its token is chosen
// by mass.
__device__ int SortedCount(const CudaSequence& sequence,
                           int64_t num_tokens,
                           int64_t num_slices) {
  int64_t count = sequence.temperature == 0.0 ? 1 : sequence.top_k;
  if (count > kMaxSortedTopK || count * num_slices > kMaxCandidates) return 0;
  if (count > num_tokens) count = num_tokens;
  return static_cast<int>(count);
}

// Writes the best `count` keys of a slice, sorted, to best[0..count), and 0
// where the slice has fewer. The count-th largest of the threads' own best keys
// is a lower bound; only `count` threads hold keys at or above it.
__device__ void SliceBest(const float* logits,
                          int64_t begin,
                          int64_t end,
                          int count,
                          uint64_t thread_best,
                          uint64_t* best) {
  __shared__ uint64_t thread_bests[kSliceThreads];
  __shared__ uint64_t candidates[kMaxSortedTopK * kPerThread];
  __shared__ uint64_t bound;
  __shared__ int num_candidates;
  thread_bests[threadIdx.x] = thread_best;
  if (threadIdx.x == 0) {
    bound = 0;
    num_candidates = 0;
  }
  if (threadIdx.x < count) best[threadIdx.x] = 0;
  __syncthreads();
  int rank = 0;
  for (const uint64_t other : thread_bests) rank += other > thread_best;
  // Threads without a token share a rank and give no bound.
  if (rank == count - 1 && thread_best != 0) bound = thread_best;
  __syncthreads();
  if (thread_best != 0 && thread_best >= bound) {
    for (int64_t i = begin + threadIdx.x; i < end; i += kSliceThreads) {
      const uint64_t key = RankKey(logits[i], static_cast<uint32_t>(i));
      if (key >= bound) candidates[atomicAdd(&num_candidates, 1)] = key;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < num_candidates; i += kSliceThreads) {
    int candidate_rank = 0;
    for (int j = 0; j < num_candidates; ++j) {
      candidate_rank += candidates[j] > candidates[i];
    }
    if (candidate_rank < count) best[candidate_rank] = candidates[i];
  }
}

__global__ void __launch_bounds__(kSliceThreads) ReadSlices(SampleArgs args) {
  __shared__ float warp_max[kSliceThreads / kWarp];
  __shared__ float warp_known_max[kSliceThreads / kWarp];
  __shared__ double warp_sum[kSliceThreads / kWarp];
  WaitForLaunchBefore();
  LetNextLaunchBegin();
  const int64_t row = blockIdx.y;
  const int32_t slot = args.slot_of_row[row];
  if (slot < 0) return;
  const float* logits = args.logits + row * args.vocab;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kSliceSize;
  const int64_t end = min(begin + kSliceSize, args.vocab);
  const int64_t known = min(end, args.num_tokens);
  bool finite = true;
  float max = -INFINITY;
  uint64_t best = 0;
#pragma unroll 8
  for (int64_t i = begin + threadIdx.x; i < end; i += kSliceThreads) {
    const float logit = logits[i];
    finite = finite && isfinite(logit);
    max = fmaxf(max, logit);
    if (i < known) {
      const uint64_t key = RankKey(logit, static_cast<uint32_t>(i));
      best = key > best ? key : best;
    }
  }
  const int warp = threadIdx.x / kWarp;
  max = ButterflyMax(max);
  float known_max = ButterflyMax(best == 0 ? -INFINITY : LogitOfKey(best));
  if (threadIdx.x % kWarp == 0) {
    warp_max[warp] = max;
    warp_known_max[warp] = known_max;
  }
  finite = __syncthreads_and(finite);
  for (const float other : warp_max) max = fmaxf(max, other);
  double sum = 0.0;
#pragma unroll 8
  for (int64_t i = begin + threadIdx.x; i < end; i += kSliceThreads) {
    sum += static_cast<double>(expf(logits[i] - max));
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, step);
  }
  if (threadIdx.x % kWarp == 0) warp_sum[warp] = sum;
  __syncthreads();
  Slice* slice =
      static_cast<Slice*>(args.scratch) + row * gridDim.x + blockIdx.x;
  if (threadIdx.x == 0) {
    sum = 0.0;
    for (const double other : warp_sum) sum += other;
    for (const float other : warp_known_max) {
      known_max = fmaxf(known_max, other);
    }
    slice->max = max;
    slice->known_max = known_max;
    slice->finite = finite;
    slice->sum = sum;
  }
  const int count =
      SortedCount(args.sequences[slot], args.num_tokens, gridDim.x);
  // The condition is uniform over the block.
  if (finite && count > 0) {
    SliceBest(logits, begin, known, count, best, slice->best);
  }
}

// Memory that both ways of choosing use.
union ChooseMemory {
  uint64_t candidates[kMaxCandidates];
  MassMemory bins;
};

// Merges the best keys of the slices and picks a token. Every thread returns
// it.
__device__ int32_t ChooseSorted(const Slice* slices,
                                int64_t num_slices,
                                int count,
                                const CudaSequence& sequence,
                                double uniform,
                                ChooseMemory& memory) {
  __shared__ uint64_t sorted[kMaxSortedTopK];
  __shared__ double weights[kMaxSortedTopK];
  __shared__ int32_t chosen;
  const int num_candidates = static_cast<int>(num_slices) * count;
  for (int i = threadIdx.x; i < num_candidates; i += kChooseThreads) {
    memory.candidates[i] = slices[i / count].best[i % count];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < num_candidates; i += kChooseThreads) {
    const uint64_t key = memory.candidates[i];
    int rank = 0;
    for (int j = 0; j < num_candidates; ++j) {
      rank += memory.candidates[j] > key;
    }
    if (key != 0 && rank < count) sorted[rank] = key;
  }
  __syncthreads();
  if (sequence.temperature == 0.0) return IdOfKey(sorted[0]);
  if (threadIdx.x < count) {
    weights[threadIdx.x] = SortedWeight(LogitOfKey(sorted[threadIdx.x]),
                                        LogitOfKey(sorted[0]),
                                        sequence.temperature);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    chosen =
        IdOfKey(sorted[PickSorted(weights, count, sequence.top_p, uniform)]);
  }
  __syncthreads();
  return chosen;
}

// Thread 0 records the token and moves the sequence on.
__device__ void Advance(const SampleArgs& args,
                        int64_t row,
                        int32_t slot,
                        CudaSampled sampled) {
  CudaSequence& sequence = args.sequences[slot];
  args.sampled[slot * kSampledRing + sequence.num_sampled % kSampledRing] =
      sampled;
  ++sequence.num_sampled;
  args.tokens[slot] = sampled.token;
  ++args.positions[slot];
  bool ended =
      sampled.token < 0 || sequence.num_sampled >= sequence.max_new_tokens;
  for (int64_t i = 0; i < args.num_end_tokens; ++i) {
    ended = ended ||
            (sequence.forced == nullptr && sampled.token == args.end_tokens[i]);
  }
  if (ended) args.slot_of_row[row] = -1;
}

__global__ void __launch_bounds__(kChooseThreads) Choose(SampleArgs args) {
  __shared__ ChooseMemory memory;
  __shared__ RadixDescent descent;
  WaitForLaunchBefore();
  const int64_t row = blockIdx.x;
  const int32_t slot = args.slot_of_row[row];
  if (slot < 0) return;
  const int64_t num_slices = NumSlices(args.vocab);
  const Slice* slices =
      static_cast<const Slice*>(args.scratch) + row * num_slices;
  const float* logits = args.logits + row * args.vocab;
  const CudaSequence sequence = args.sequences[slot];
  bool finite = true;
  float max = -INFINITY;
  float known_max = -INFINITY;
  for (int64_t i = 0; i < num_slices; ++i) {
    finite = finite && slices[i].finite;
    max = fmaxf(max, slices[i].max);
    known_max = fmaxf(known_max, slices[i].known_max);
  }
  int32_t token = -1;
  if (finite && sequence.forced != nullptr) {
    token = sequence.forced[sequence.num_sampled];
  } else if (finite) {
    const auto index = static_cast<uint32_t>(sequence.num_sampled);
    const double uniform = PhiloxUniform(
        Philox({{index, sequence.sample, sequence.example, sequence.step}},
               sequence.seed));
    const int count = SortedCount(sequence, args.num_tokens, num_slices);
    token =
        count > 0
            ? ChooseSorted(slices, num_slices, count, sequence, uniform, memory)
            : ChooseByMass(logits,
                           known_max,
                           static_cast<int>(args.num_tokens),
                           sequence,
                           uniform,
                           memory.bins,
                           descent);
  }
  // After this barrier no thread reads the sequence any more.
  __syncthreads();
  if (threadIdx.x != 0) return;
  CudaSampled sampled{token, 0.0F};
  if (token >= 0) {
    double sum = 0.0;
    for (int64_t i = 0; i < num_slices; ++i) {
      sum += slices[i].sum *
             exp(static_cast<double>(slices[i].max) - static_cast<double>(max));
    }
    sampled.logprob = static_cast<float>(static_cast<double>(logits[token]) -
                                         static_cast<double>(max) - log(sum));
  }
  Advance(args, row, slot, sampled);
}

}  // namespace

extern "C" int64_t DapdCudaSampleScratch(int64_t rows, int64_t vocab) {
  static_assert(kSliceSize == kSampleSliceTokens &&
                sizeof(Slice) == kSampleSliceBytes);
  return SampleScratch(rows, vocab);
}

extern "C" int DapdCudaSample(const SampleArgs* args, void* stream) {
  const auto rows = static_cast<unsigned>(args->num_rows);
  const dim3 grid(static_cast<unsigned>(NumSlices(args->vocab)), rows);
  const Begin begin = args->behind_a_gather ? Begin::kInTurn : Begin::kEarly;
  const int read =
      LaunchOn<ReadSlices>(stream, begin, grid, kSliceThreads, *args);
  if (read != cudaSuccess) return read;
  return LaunchOn<Choose>(
      stream, Begin::kEarly, dim3(rows), kChooseThreads, *args);
}

}  // namespace dapd
