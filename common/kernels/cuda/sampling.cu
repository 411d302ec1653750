#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/sampling.h"
#include "common/kernels/sampling_math.h"

namespace dapd {
namespace {

constexpr int kSliceThreads = 256;
constexpr int kPerThread = 32;
constexpr int kSliceSize = kSliceThreads * kPerThread;
constexpr int kChooseThreads = 512;
constexpr int kMaxCandidates = 4096;
// The general way: logits that a thread has under way, and sets of bins, of
// which a lane adds to one, so that few lanes collide.
constexpr int kLogitsAhead = 8;
constexpr int kReplicas = 8;

// What the first launch finds of a slice.
struct Slice {
  float max;
  float known_max;  // of the tokens that may be sampled; -infinity: it has none
  bool finite;
  double sum;  // of exp(logit - max)
  uint64_t best[kMaxSortedTopK];
};

__host__ __device__ int64_t NumSlices(int64_t vocab) {
  return (vocab + kSliceSize - 1) / kSliceSize;
}

// Tokens to sort for a sequence; 0: the general way.
__device__ int SortedCount(const CudaSequence& sequence,
                           int64_t num_tokens,
                           int64_t num_slices) {
  int64_t count = sequence.temperature == 0.0 ? 1 : sequence.top_k;
  if (count > kMaxSortedTopK || count * num_slices > kMaxCandidates) return 0;
  if (count > num_tokens) count = num_tokens;
  return static_cast<int>(count);
}

// The best `count` of a slice, sorted, into best[0..count); 0 where it has
// fewer. The count-th of the threads' own best bounds them from below, and only
// `count` threads hold anything at or above that bound.
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
  // Threads that have no token share a rank, and bound nothing.
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
  // Uniform over the block.
  if (finite && count > 0) {
    SliceBest(logits, begin, known, count, best, slice->best);
  }
}

// A DigitBin that threads add to at the same time. Shared memory adds 32 bits
// by itself; 64 are a loop that begins again whenever another thread was
// faster.
struct SharedBin {
  uint32_t low;  // of the weight
  uint32_t high;
  uint32_t count;

  __device__ void Add(uint64_t weight) {
    const auto to_low = static_cast<uint32_t>(weight);
    const uint32_t carry = atomicAdd(&low, to_low) > ~to_low ? 1 : 0;
    const uint32_t to_high = static_cast<uint32_t>(weight >> 32) + carry;
    if (to_high != 0) atomicAdd(&high, to_high);
    atomicAdd(&count, 1U);
  }
  __device__ uint64_t Weight() const {
    return static_cast<uint64_t>(high) << 32 | low;
  }
};

// A bin more than there are digits: those of one digit lie in different banks.
using Replica = SharedBin[kNumDigits + 1];
static_assert(sizeof(SharedBin) / sizeof(uint32_t) * (kNumDigits + 1) % 2 == 1);

// The memory that either way of choosing uses.
union ChooseMemory {
  uint64_t candidates[kMaxCandidates];
  struct {
    Replica replicas[kReplicas];
    DigitBin sums[kNumDigits];
  } bins;
};

// Merges the slices' best and picks. Every thread returns the token.
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

// A row of logits as the general way weighs it: every known token at or above
// `floor`, by number or by mass.
struct WeighedRow {
  const float* logits;
  int num_tokens;
  float best;
  float temperature;
  bool by_mass;
  uint64_t floor;

  // visit(key, weight) for the calling thread's tokens of this descent's
  // prefix. Without a weight they change no quantile.
  template <typename Visit>
  __device__ void ForEach(const RadixDescent& descent,
                          const Visit& visit) const {
    for (int first = threadIdx.x; first < num_tokens;
         first += kLogitsAhead * kChooseThreads) {
      float ahead[kLogitsAhead];
#pragma unroll
      for (int i = 0; i < kLogitsAhead; ++i) {
        // Behind the last token that one again, for nothing.
        ahead[i] = logits[min(first + i * kChooseThreads, num_tokens - 1)];
      }
#pragma unroll
      for (int i = 0; i < kLogitsAhead; ++i) {
        const int token = first + i * kChooseThreads;
        const uint64_t key = RankKey(ahead[i], static_cast<uint32_t>(token));
        if (token >= num_tokens || key < floor || !descent.Matches(key)) {
          continue;
        }
        const uint64_t weight =
            by_mass ? FixedMass(ahead[i], best, temperature) : 1;
        if (weight != 0) visit(key, weight);
      }
    }
  }
};

// The sum of all weights, in every thread.
__device__ uint64_t TotalWeight(const WeighedRow& row) {
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  unsigned long long sum = 0;
  row.ForEach(RadixDescent{},
              [&](uint64_t /*key*/, uint64_t weight) { sum += weight; });
  // One addition a warp: 512 to one place would follow each other.
  sum = ButterflySum<kWarp>(sum);
  if (threadIdx.x % kWarp == 0) atomicAdd(&total, sum);
  __syncthreads();
  return total;
}

// Runs a descent to its end; every thread returns it.
__device__ RadixDescent RunDescent(const WeighedRow& row,
                                   uint64_t need,
                                   ChooseMemory& memory) {
  __shared__ RadixDescent descent;
  if (threadIdx.x == 0) {
    descent = RadixDescent{};
    descent.need = need;
  }
  auto& [replicas, sums] = memory.bins;
  __syncthreads();
  while (!descent.done) {
    for (int i = threadIdx.x; i < kReplicas * kNumDigits; i += kChooseThreads) {
      replicas[i / kNumDigits][i % kNumDigits] = {0, 0, 0};
    }
    __syncthreads();
    const RadixDescent now = descent;
    SharedBin* bins = replicas[threadIdx.x % kReplicas];
    row.ForEach(now, [&](uint64_t key, uint64_t weight) {
      bins[now.Digit(key)].Add(weight);
    });
    __syncthreads();
    if (threadIdx.x < kNumDigits) {
      DigitBin sum = {0, 0};
      for (const Replica& replica : replicas) {
        sum.weight += replica[threadIdx.x].Weight();
        sum.count += replica[threadIdx.x].count;
      }
      sums[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) descent.Descend(sums);
    __syncthreads();
  }
  const RadixDescent finished = descent;
  __syncthreads();
  return finished;
}

// The token by weighted quantiles. Every thread returns it.
__device__ int32_t ChooseByMass(const float* logits,
                                float best,
                                int num_tokens,
                                const CudaSequence& sequence,
                                double uniform,
                                ChooseMemory& memory) {
  __shared__ int32_t chosen;
  WeighedRow row{logits,
                 num_tokens,
                 best,
                 MassTemperature(sequence.temperature),
                 false,
                 0};
  if (sequence.top_k > 0 && sequence.top_k < num_tokens) {
    row.floor =
        RunDescent(row, static_cast<uint64_t>(sequence.top_k), memory).Floor();
  }
  row.by_mass = true;
  uint64_t total = TotalWeight(row);
  if (sequence.top_p < 1.0) {
    const RadixDescent cut =
        RunDescent(row, MassToReach(sequence.top_p, total), memory);
    row.floor = cut.Floor() > row.floor ? cut.Floor() : row.floor;
    total = cut.weight;
  }
  const RadixDescent draw = RunDescent(row, MassToPass(uniform, total), memory);
  // Above the row's floor only one key with a weight has the prefix.
  row.ForEach(
      draw, [&](uint64_t key, uint64_t /*weight*/) { chosen = IdOfKey(key); });
  __syncthreads();
  return chosen;
}

// Thread 0: records the token and moves the sequence on.
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
                           memory);
  }
  // Nobody reads the sequence any more.
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
