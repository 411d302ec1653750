#include "common/kernels/cuda/decoder_layer.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/decode_layer_math.h"

namespace dapd {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
static_assert(kMaxDecodeHidden == int64_t{8} * 8 * kThreads);

template <typename T>
__global__ void Embedding(EmbeddingArgs args) {
  LetNextLaunchBegin();
  const int64_t row = blockIdx.x;
  const int32_t slot = args.rows.slot_of_row[row];
  if (slot < 0) return;
  const T* from =
      static_cast<const T*>(args.embedding) + args.tokens[slot] * args.hidden;
  T* to = static_cast<T*>(args.x) + row * args.hidden;
  for (int64_t i = threadIdx.x * 8; i < args.hidden; i += kThreads * 8) {
    Store8(to + i, Load8(from + i));
  }
}

// Returns the sum over the block in every thread. The sums of the warps are
// added in order.
__device__ float BlockSum(float value) {
  __shared__ float warp_sums[kWarps];
  value = ButterflySum<kWarp>(value);
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0.0F;
  for (const float warp_sum : warp_sums) sum += warp_sum;
  return sum;
}

// Returns the eight numbers that are added to the residual stream from `at` on.
template <typename T>
__device__ Vector8<T> Delta8(const ResidualNormArgs& args, int64_t at) {
  if (args.parts == nullptr) {
    return Load8(static_cast<const T*>(args.delta) + at);
  }
  Vector8<float> sum = Load8(args.parts + at);
  for (int64_t part = 1; part < args.num_parts; ++part) {
    const Vector8<float> next =
        Load8(args.parts + part * args.num_rows * args.hidden + at);
    for (int j = 0; j < 8; ++j) sum.value[j] += next.value[j];
  }
  Vector8<T> rounded;
  for (int j = 0; j < 8; ++j) rounded.value[j] = FromFloat<T>(sum.value[j]);
  return rounded;
}

// kVectors is the largest number of vectors of eight numbers that a thread
// holds of a row.
template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreads)
    ResidualNorm(ResidualNormArgs args) {
  const auto for_own = [&args](const auto& use) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = (v * kThreads + threadIdx.x) * 8;
      if (i < args.hidden) use(v, i);
    }
  };
  // No launch writes the weights, so they are loaded before the wait.
  const T* weight = static_cast<const T*>(args.weight);
  Vector8<T> weights[kVectors];
  for_own([&](int v, int64_t i) { weights[v] = Load8(weight + i); });
  WaitForLaunchBefore();
  LetNextLaunchBegin();

  const int64_t row = blockIdx.x;
  T* x = static_cast<T*>(args.x) + row * args.hidden;
  const T* bias = static_cast<const T*>(args.bias);
  const bool has_delta = args.delta != nullptr || args.parts != nullptr;
  Vector8<T> values[kVectors];
  float sum = 0.0F;
  for_own([&](int v, int64_t i) {
    values[v] = Load8(x + i);
    if (has_delta) {
      const Vector8<T> added = Delta8<T>(args, row * args.hidden + i);
      for (int j = 0; j < 8; ++j) {
        values[v].value[j] =
            AddResidual(values[v].value[j],
                        added.value[j],
                        bias == nullptr ? 0.0F : ToFloat(bias[i + j]));
      }
      Store8(x + i, values[v]);
    }
    for (int j = 0; j < 8; ++j) {
      const float value = ToFloat(values[v].value[j]);
      sum = fmaf(value, value, sum);
    }
  });
  const float scale = NormScale(BlockSum(sum), args.hidden, args.eps);
  T* out = static_cast<T*>(args.out) + row * args.out_stride;
  for_own([&](int v, int64_t i) {
    Vector8<T> normed;
    for (int j = 0; j < 8; ++j) {
      normed.value[j] =
          Normalized(ToFloat(values[v].value[j]), scale, weights[v].value[j]);
    }
    Store8(out + i, normed);
  });
}

// A warp returns the scale of the numbers that its lanes have, of which
// `largest` is the lane's largest magnitude. `poison` is 0, or not finite if
// one of the lane's numbers is not: then the scale is not either.
__device__ float WarpScale(float largest, float poison) {
  const float scale = Float8Scale(ButterflyMax(largest));
  return scale + ButterflySum<kWarp>(poison);
}

// One warp computes a head. Lane i holds the pairs i, i + 32, ... of (d, d +
// head_dim/2). Cached is the type of the cache's numbers.
template <typename T, typename Cached>
__global__ void Qkv(QkvArgs args) {
  constexpr int kPairs = kMaxHeadDim / 2 / kWarp;
  const int64_t row = blockIdx.x;
  const int64_t head = blockIdx.y * kWarps + threadIdx.x / kWarp;
  const int64_t num_heads = args.heads + 2 * args.kv_heads;
  const bool is_query = head < args.heads;
  const bool is_key = !is_query && head < args.heads + args.kv_heads;
  const int lane = threadIdx.x % kWarp;
  const int64_t half = args.head_dim / 2;
  const auto for_own = [lane, half](const auto& use) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int64_t i = lane + j * kWarp;
      if (i < half) use(j, i);
    }
  };

  // The launch in front writes nothing that is read here. The previous step has
  // written the slot and the position.
  const int32_t slot =
      head < num_heads ? __ldcg(args.rows.slot_of_row + row) : -1;
  int64_t position = 0;
  T cosine[kPairs];
  T sine[kPairs];
  T first_norm[kPairs];
  T second_norm[kPairs];
  const T* norm = static_cast<const T*>(is_query ? args.q_norm
                                        : is_key ? args.k_norm
                                                 : nullptr);
  if (slot >= 0) {
    position = __ldcg(args.rows.positions + slot);
    for_own([&](int j, int64_t i) {
      const int64_t at = position * args.head_dim + i;
      cosine[j] = static_cast<const T*>(args.cosine)[at];
      sine[j] = static_cast<const T*>(args.sine)[at];
      if (norm == nullptr) return;
      first_norm[j] = norm[i];
      second_norm[j] = norm[i + half];
    });
  }
  WaitForLaunchBefore();
  LetNextLaunchBegin();
  if (slot < 0) return;

  T* values =
      static_cast<T*>(args.qkv) + (row * num_heads + head) * args.head_dim;
  const T* bias = static_cast<const T*>(args.bias);
  float first[kPairs] = {};
  float second[kPairs] = {};
  float sum = 0.0F;
  for_own([&](int j, int64_t i) {
    first[j] = ToFloat(values[i]);
    second[j] = ToFloat(values[i + half]);
    if (bias != nullptr) {
      const T* head_bias = bias + head * args.head_dim;
      first[j] = RoundedTo<T>(first[j] + ToFloat(head_bias[i]));
      second[j] = RoundedTo<T>(second[j] + ToFloat(head_bias[i + half]));
    }
    sum = fmaf(first[j], first[j], sum);
    sum = fmaf(second[j], second[j], sum);
  });
  if (norm != nullptr) {
    const float scale =
        NormScale(ButterflySum<kWarp>(sum), args.head_dim, args.eps);
    for_own([&](int j, int64_t /*i*/) {
      first[j] = ToFloat(Normalized(first[j], scale, first_norm[j]));
      second[j] = ToFloat(Normalized(second[j], scale, second_norm[j]));
    });
  }
  for_own([&](int j, int64_t /*i*/) {
    if (is_query || is_key) {
      const RotatedPair pair = Rotate(first[j], second[j], cosine[j], sine[j]);
      first[j] = pair.first;
      second[j] = pair.second;
    }
  });
  const auto round = [](float value) { return FromFloat<T>(value); };
  if (is_query) {
    for_own([&](int j, int64_t i) {
      values[i] = round(first[j]);
      values[i + half] = round(second[j]);
    });
    return;
  }
  const int64_t kv_head = head - args.heads - (is_key ? 0 : args.kv_heads);
  Cached* const part =
      CachedTokens<Cached>(args.cache,
                           slot,
                           position / kPageTokens,
                           is_key ? CachedPart::kKeys : CachedPart::kValues,
                           args.kv_heads,
                           kv_head,
                           args.head_dim);
  const int64_t token = position % kPageTokens;
  Cached* const cached = part + token * args.head_dim;
  if constexpr (std::is_same_v<Cached, Float8>) {
    float largest = 0.0F;
    float poison = 0.0F;
    for_own([&](int j, int64_t /*i*/) {
      for (float* value : {&first[j], &second[j]}) {
        *value = RoundedTo<T>(*value);
        largest = fmaxf(largest, fabsf(*value));
        poison += *value - *value;
      }
    });
    const float scale = WarpScale(largest, poison);
    for_own([&](int j, int64_t i) {
      cached[i] = ToFloat8(first[j] / scale);
      cached[i + half] = ToFloat8(second[j] / scale);
    });
    if (lane == 0) {
      ScalesOf(part, args.head_dim)[token] = FromFloat<BFloat16>(scale);
    }
  } else {
    for_own([&](int j, int64_t i) {
      cached[i] = round(first[j]);
      cached[i + half] = round(second[j]);
    });
  }
}

template <typename T>
__global__ void SwiGlu(SwiGluArgs args) {
  WaitForLaunchBefore();
  LetNextLaunchBegin();
  const int64_t row = blockIdx.y;
  const int64_t i = (blockIdx.x * kThreads + threadIdx.x) * 8;
  if (i >= args.intermediate) return;
  const T* gate =
      static_cast<const T*>(args.gate_up) + row * 2 * args.intermediate + i;
  const T* bias = static_cast<const T*>(args.bias);
  const Vector8<T> gates = Load8(gate);
  const Vector8<T> ups = Load8(gate + args.intermediate);
  Vector8<T> out;
  for (int j = 0; j < 8; ++j) {
    float g = ToFloat(gates.value[j]);
    float u = ToFloat(ups.value[j]);
    if (bias != nullptr) {
      g = RoundedTo<T>(g + ToFloat(bias[i + j]));
      u = RoundedTo<T>(u + ToFloat(bias[args.intermediate + i + j]));
    }
    out.value[j] = Gated<T>(g, u);
  }
  Store8(static_cast<T*>(args.out) + row * args.out_stride + i, out);
}

}  // namespace

// This is the first launch of a step. It begins in turn, so the whole step
// does.
extern "C" int DapdCudaEmbedding(const EmbeddingArgs* args,
                                 CudaNumber number,
                                 void* stream) {
  return LaunchFor(number, [&](auto t) {
    return LaunchOn<Embedding<decltype(t)>>(
        stream,
        Begin::kInTurn,
        dim3(static_cast<unsigned>(args->rows.num_rows)),
        kThreads,
        *args);
  });
}

extern "C" int DapdCudaResidualNorm(const ResidualNormArgs* args,
                                    CudaNumber number,
                                    void* stream) {
  // After a gather of NCCL, whose kernels wait for other devices, the launch
  // begins in turn.
  const Begin begin = args->parts == nullptr ? Begin::kEarly : Begin::kInTurn;
  const auto launch = [&]<auto kKernel>() {
    return LaunchOn<kKernel>(stream,
                             begin,
                             dim3(static_cast<unsigned>(args->num_rows)),
                             kThreads,
                             *args);
  };
  return LaunchFor(number, [&](auto t) {
    using T = decltype(t);
    const unsigned vectors = NumBlocks(args->hidden, kThreads * 8);
    if (vectors <= 1) return launch.template operator()<&ResidualNorm<T, 1>>();
    if (vectors <= 2) return launch.template operator()<&ResidualNorm<T, 2>>();
    if (vectors <= 4) return launch.template operator()<&ResidualNorm<T, 4>>();
    if (vectors <= 8) return launch.template operator()<&ResidualNorm<T, 8>>();
    return static_cast<int>(cudaErrorInvalidValue);
  });
}

extern "C" int DapdCudaQkv(const QkvArgs* args,
                           CudaNumber number,
                           void* stream) {
  const dim3 grid(static_cast<unsigned>(args->rows.num_rows),
                  NumBlocks(args->heads + 2 * args->kv_heads, kWarps));
  const auto launch = [&]<auto kKernel>() {
    return LaunchOn<kKernel>(stream, Begin::kEarly, grid, kThreads, *args);
  };
  if (number == CudaNumber::kFloat32) {
    return args->cache.is_float8
               ? static_cast<int>(cudaErrorInvalidValue)
               : launch.template operator()<&Qkv<float, float>>();
  }
  return args->cache.is_float8
             ? launch.template operator()<&Qkv<BFloat16, Float8>>()
             : launch.template operator()<&Qkv<BFloat16, BFloat16>>();
}

extern "C" int DapdCudaSwiGlu(const SwiGluArgs* args,
                              CudaNumber number,
                              void* stream) {
  const dim3 grid(NumBlocks(args->intermediate, kThreads * 8),
                  static_cast<unsigned>(args->num_rows));
  return LaunchFor(number, [&](auto t) {
    return LaunchOn<SwiGlu<decltype(t)>>(
        stream, Begin::kEarly, grid, kThreads, *args);
  });
}

}  // namespace dapd
