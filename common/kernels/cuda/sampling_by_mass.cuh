// Sampling where there are too many tokens to sort. The quantiles of a row are
// found digit by digit of the tokens' ranks (sampling_math.h), weighed by the
// number or by the mass of the tokens above. A block of kChooseThreads threads
// takes a row.
#pragma once

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/sampling.h"
#include "common/kernels/sampling_math.h"

namespace dapd {
namespace {

constexpr int kChooseThreads = 512;
// Logits whose loads a thread has under way at a time.
constexpr int kLogitsAhead = 8;
// Number of sets of bins. A lane adds to one set, so that few lanes collide.
constexpr int kReplicas = 8;

// A DigitBin that threads add to concurrently. Shared memory adds 32 bits in
// one instruction; an addition of 64 bits is a loop that starts again whenever
// another thread was faster.
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

// There is one more bin than digits, so that the bins of one digit lie in
// different banks.
using Replica = SharedBin[kNumDigits + 1];
static_assert(sizeof(SharedBin) / sizeof(uint32_t) * (kNumDigits + 1) % 2 == 1);

struct MassMemory {
  Replica replicas[kReplicas];
  DigitBin sums[kNumDigits];
  unsigned long long total;
  int32_t chosen;
};

// The weights of a row of logits: every known token at or above `floor` counts,
// with weight 1 or with its mass.
struct WeighedRow {
  const float* logits;
  int num_tokens;
  float best;
  float temperature;
  bool by_mass;
  uint64_t floor;

  // Calls visit(key, weight) for the calling thread's tokens that have the
  // descent's prefix. It skips tokens without weight, which change no quantile.
  template <typename Visit>
  __device__ void ForEach(const RadixDescent& descent,
                          const Visit& visit) const {
    for (int first = threadIdx.x; first < num_tokens;
         first += kLogitsAhead * kChooseThreads) {
      float ahead[kLogitsAhead];
#pragma unroll
      for (int i = 0; i < kLogitsAhead; ++i) {
        // Behind the last token this reads the last token again; the loop below
        // skips it.
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

// Returns the sum of all weights in every thread.
__device__ uint64_t TotalWeight(const WeighedRow& row, MassMemory& memory) {
  unsigned long long& total = memory.total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  unsigned long long sum = 0;
  row.ForEach(RadixDescent{},
              [&](uint64_t /*key*/, uint64_t weight) { sum += weight; });
  // One atomic addition per warp: 512 additions to one place would be
  // serialised.
  sum = ButterflySum<kWarp>(sum);
  if (threadIdx.x % kWarp == 0) atomicAdd(&total, sum);
  __syncthreads();
  return total;
}

// Runs a descent to its end. Every thread returns it. `descent` is a shared
// variable.
__device__ RadixDescent RunDescent(const WeighedRow& row,
                                   uint64_t need,
                                   MassMemory& memory,
                                   RadixDescent& descent) {
  if (threadIdx.x == 0) {
    descent = RadixDescent{};
    descent.need = need;
  }
  Replica(&replicas)[kReplicas] = memory.replicas;
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
      memory.sums[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) descent.Descend(memory.sums);
    __syncthreads();
  }
  const RadixDescent finished = descent;
  __syncthreads();
  return finished;
}

// Chooses the token by weighted quantiles. Every thread returns it.
__device__ int32_t ChooseByMass(const float* logits,
                                float best,
                                int num_tokens,
                                const CudaSequence& sequence,
                                double uniform,
                                MassMemory& memory,
                                RadixDescent& descent) {
  WeighedRow row{logits,
                 num_tokens,
                 best,
                 MassTemperature(sequence.temperature),
                 false,
                 0};
  if (sequence.top_k > 0 && sequence.top_k < num_tokens) {
    row.floor =
        RunDescent(row, static_cast<uint64_t>(sequence.top_k), memory, descent)
            .Floor();
  }
  row.by_mass = true;
  uint64_t total = TotalWeight(row, memory);
  if (sequence.top_p < 1.0) {
    const RadixDescent cut =
        RunDescent(row, MassToReach(sequence.top_p, total), memory, descent);
    row.floor = cut.Floor() > row.floor ? cut.Floor() : row.floor;
    total = cut.weight;
  }
  const RadixDescent draw =
      RunDescent(row, MassToPass(uniform, total), memory, descent);
  // At or above the row's floor only one key with a weight has the prefix.
  row.ForEach(draw, [&](uint64_t key, uint64_t /*weight*/) {
    memory.chosen = IdOfKey(key);
  });
  __syncthreads();
  return memory.chosen;
}

}  // namespace
}  // namespace dapd
