// Computes on the host what the kernels and products that CudaDecoder launches
// compute, with the same headers of mathematics. The functions are linked in
// place of cuBLASLt and the .cu files, and run as launches of the device that
// cuda_on_host.cc simulates.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/generation/sampling.h"
#include "common/kernels/cuda/bulk_product.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/decoder_layer.h"
#include "common/kernels/cuda/gemm.h"
#include "common/kernels/cuda/sampling.h"
#include "common/kernels/cuda/skinny_product.h"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/decode_layer_math.h"
#include "common/kernels/float8.h"
#include "common/tensor/aten.h"
#include "tests/fakes/attention_twin.h"
#include "tests/fakes/cuda_on_host.h"

namespace dapd {
namespace {

template <typename T>
T* At(const void* base, int64_t offset) {
  return static_cast<T*>(const_cast<void*>(base)) + offset;
}

// Returns the result of the product that the calling thread launched last; null
// if its last launch was no product.
const void*& LastProduct() {
  thread_local const void* y = nullptr;
  return y;
}

// Returns 0, the code of a successful launch.
int Submit(std::function<void()> call) {
  LastProduct() = nullptr;
  LaunchOnCudaHost(std::move(call));
  return 0;
}

template <typename Body>
int SubmitFor(CudaNumber number, const Body& body) {
  return Submit([number, body] {
    if (number == CudaNumber::kFloat32) {
      body(float{});
    } else {
      body(BFloat16{});
    }
  });
}

// Returns [kPageTokens, head_dim] of a KV head in a page.
template <typename T>
T* Cached(const CudaKvPages& cache,
          int64_t slot,
          int64_t page,
          int64_t part,
          int64_t kv_heads,
          int64_t kv_head,
          int64_t head_dim) {
  return At<T>(
      cache.pages[slot * cache.pages_per_slot + page],
      ((cache.layer * 2 + part) * kv_heads + kv_head) * kPageTokens * head_dim);
}

// Returns a KV head's numbers and scales in a page of Float8.
Float8* CachedFloat8(const CudaKvPages& cache,
                     int64_t slot,
                     int64_t page,
                     int64_t part,
                     int64_t kv_heads,
                     int64_t kv_head,
                     int64_t head_dim) {
  return At<Float8>(cache.pages[slot * cache.pages_per_slot + page],
                    ((cache.layer * 2 + part) * kv_heads + kv_head) *
                        Float8PartBytes(head_dim));
}
BFloat16* ScalesOf(Float8* part, int64_t head_dim) {
  return reinterpret_cast<BFloat16*>(part + kPageTokens * head_dim);
}

// Writes a token's rounded numbers.
template <typename T>
void WriteFloat8(const std::vector<T>& values,
                 int64_t token,
                 int64_t head_dim,
                 Float8* part) {
  float largest = 0.0F;
  for (const T value : values) {
    largest = std::max(largest, std::abs(ToFloat(value)));
  }
  const float scale = Float8Scale(largest);
  for (int64_t i = 0; i < head_dim; ++i) {
    part[token * head_dim + i] =
        ToFloat8(ToFloat(values[static_cast<size_t>(i)]) / scale);
  }
  ScalesOf(part, head_dim)[token] = FromFloat<BFloat16>(scale);
}

template <typename T>
float SquareSum(const T* x, int64_t size) {
  float sum = 0.0F;
  for (int64_t i = 0; i < size; ++i) sum += ToFloat(x[i]) * ToFloat(x[i]);
  return sum;
}

// Returns the summand of number `at` of the residual stream.
template <typename T>
T DeltaOf(const ResidualNormArgs& args, int64_t at) {
  if (args.parts == nullptr) return *At<T>(args.delta, at);
  float sum = args.parts[at];
  for (int64_t part = 1; part < args.num_parts; ++part) {
    sum += args.parts[part * args.num_rows * args.hidden + at];
  }
  return FromFloat<T>(sum);
}

template <typename T>
void RunQkv(const QkvArgs& args) {
  const int64_t dim = args.head_dim;
  const int64_t heads = args.heads + 2 * args.kv_heads;
  for (int64_t row = 0; row < args.rows.num_rows; ++row) {
    const int32_t slot = args.rows.slot_of_row[row];
    if (slot < 0) continue;
    const int64_t position = args.rows.positions[slot];
    for (int64_t head = 0; head < heads; ++head) {
      T* x = At<T>(args.qkv, (row * heads + head) * dim);
      std::vector<T> values(x, x + dim);
      for (int64_t i = 0; i < dim && args.bias != nullptr; ++i) {
        values[i] = FromFloat<T>(ToFloat(x[i]) +
                                 ToFloat(*At<T>(args.bias, head * dim + i)));
      }
      const bool is_value = head >= args.heads + args.kv_heads;
      const void* norm = head < args.heads ? args.q_norm : args.k_norm;
      if (!is_value && norm != nullptr) {
        const float scale =
            NormScale(SquareSum(values.data(), dim), dim, args.eps);
        for (int64_t i = 0; i < dim; ++i) {
          values[i] = Normalized(ToFloat(values[i]), scale, *At<T>(norm, i));
        }
      }
      T* to = x;
      std::vector<T> turned(values.size());
      if (args.cache.is_float8 && head >= args.heads) {
        to = turned.data();
      } else if (head >= args.heads) {
        to = Cached<T>(args.cache,
                       slot,
                       position / kPageTokens,
                       is_value ? 1 : 0,
                       args.kv_heads,
                       (head - args.heads) % args.kv_heads,
                       dim) +
             position % kPageTokens * dim;
      }
      for (int64_t i = 0; i < dim / 2; ++i) {
        RotatedPair pair{ToFloat(values[i]), ToFloat(values[i + dim / 2])};
        if (!is_value) {
          pair = Rotate(pair.first,
                        pair.second,
                        *At<T>(args.cosine, position * dim + i),
                        *At<T>(args.sine, position * dim + i));
        }
        to[i] = FromFloat<T>(pair.first);
        to[i + dim / 2] = FromFloat<T>(pair.second);
      }
      if (to == turned.data()) {
        WriteFloat8(turned,
                    position % kPageTokens,
                    dim,
                    CachedFloat8(args.cache,
                                 slot,
                                 position / kPageTokens,
                                 is_value ? 1 : 0,
                                 args.kv_heads,
                                 (head - args.heads) % args.kv_heads,
                                 dim));
      }
    }
  }
}

template <typename T>
void RunAttention(const DecodeAttentionArgs& args) {
  const int64_t dim = args.head_dim;
  WorkOfCudaHost().attended_tokens = args.max_tokens;
  WorkOfCudaHost().attended_rows = args.rows.num_rows;
  for (int64_t row = 0; row < args.rows.num_rows; ++row) {
    const int32_t slot = args.rows.slot_of_row[row];
    if (slot < 0) continue;
    const int64_t length = args.rows.positions[slot] + 1;
    TORCH_CHECK(length <= args.max_tokens, "the graph is too short");
    for (int64_t head = 0; head < args.heads; ++head) {
      const T* q = At<T>(args.q, row * args.q_stride + head * dim);
      const int64_t kv_head = head / (args.heads / args.kv_heads);
      std::vector<SoftmaxPart> parts;
      std::vector<float> outputs;
      for (int64_t page = 0; page < NumPages(length); ++page) {
        const auto tokens =
            std::min<int64_t>(length - page * kPageTokens, kPageTokens);
        const auto cached = [&](int64_t part, int64_t token, int64_t i) {
          if (args.cache.is_float8) {
            Float8* const of_head = CachedFloat8(
                args.cache, slot, page, part, args.kv_heads, kv_head, dim);
            return ToFloat(of_head[token * dim + i]) *
                   ToFloat(ScalesOf(of_head, dim)[token]);
          }
          return ToFloat(Cached<T>(args.cache,
                                   slot,
                                   page,
                                   part,
                                   args.kv_heads,
                                   kv_head,
                                   dim)[token * dim + i]);
        };
        std::vector<float> scores;
        SoftmaxPart part{-INFINITY, 0.0F};
        for (int64_t t = 0; t < tokens; ++t) {
          float score = 0.0F;
          for (int64_t i = 0; i < dim; ++i) {
            score += ToFloat(q[i]) * cached(0, t, i);
          }
          scores.push_back(score / sqrtf(static_cast<float>(dim)));
          part.max = std::max(part.max, scores.back());
        }
        const size_t begin = outputs.size();
        outputs.resize(begin + static_cast<size_t>(dim), 0.0F);
        for (int64_t t = 0; t < tokens; ++t) {
          const float weight = expf(scores[t] - part.max);
          part.sum += weight;
          for (int64_t i = 0; i < dim; ++i) {
            outputs[begin + i] += weight * cached(1, t, i);
          }
        }
        parts.push_back(part);
      }
      for (int64_t i = 0; i < dim; ++i) {
        *At<T>(args.out, row * args.out_stride + head * dim + i) = FromFloat<T>(
            CombinePages(parts.data(), &outputs[i], dim, NumPages(length)));
      }
    }
  }
}

void RunSample(const SampleArgs& args) {
  for (int64_t row = 0; row < args.num_rows; ++row) {
    const int32_t slot = args.slot_of_row[row];
    if (slot < 0) continue;
    CudaSequence& sequence = args.sequences[slot];
    const std::span<const float> logits(args.logits + row * args.vocab,
                                        static_cast<size_t>(args.vocab));
    const auto index = static_cast<uint32_t>(sequence.num_sampled);
    CudaSampled sampled;
    sampled.token =
        sequence.forced != nullptr
            ? sequence.forced[index]
            : SampleToken(
                  logits,
                  args.num_tokens,
                  {sequence.temperature, sequence.top_k, sequence.top_p},
                  KeyedUniform({sequence.seed,
                                sequence.step,
                                sequence.example,
                                sequence.sample},
                               index));
    sampled.logprob = LogProbability(logits, sampled.token);
    args.sampled[slot * kSampledRing + index % kSampledRing] = sampled;
    ++sequence.num_sampled;
    args.tokens[slot] = sampled.token;
    ++args.positions[slot];
    bool ended = sequence.num_sampled >= sequence.max_new_tokens;
    for (int64_t i = 0; i < args.num_end_tokens; ++i) {
      ended = ended || (sequence.forced == nullptr &&
                        sampled.token == args.end_tokens[i]);
    }
    if (ended) args.slot_of_row[row] = -1;
  }
}

void RunProduct(const CudaProduct& product) {
  const auto type =
      product.number == CudaNumber::kFloat32 ? at::kFloat : at::kBFloat16;
  const auto matrix = [](const void* data,
                         int64_t rows,
                         int64_t cols,
                         int64_t stride,
                         at::ScalarType dtype) {
    return at::from_blob(
        const_cast<void*>(data), {rows, cols}, {stride, 1}, dtype);
  };
  const auto [m, k, n] = std::tuple(product.rows, product.inner, product.cols);
  const at::Tensor x = matrix(product.x, m, k, product.x_stride, type);
  const at::Tensor w =
      product.w_is_kn ? matrix(product.w, k, n, product.w_stride, type)
                      : matrix(product.w, n, k, product.w_stride, type).t();
  const auto result = product.float_result ? at::kFloat : type;
  at::Tensor sum = x.to(at::kFloat).mm(w.to(at::kFloat)) * product.alpha;
  if (product.beta != 0.0F) {
    sum += product.beta *
           matrix(product.c, m, n, product.y_stride, result).to(at::kFloat);
  }
  matrix(product.y, m, n, product.y_stride, result).copy_(sum);
}

}  // namespace

extern "C" int DapdCudaEmbedding(const EmbeddingArgs* args,
                                 CudaNumber number,
                                 void* /*stream*/) {
  if (EmbeddingsWithoutMemory() > 0) {
    --EmbeddingsWithoutMemory();
    return cudaErrorMemoryAllocation;
  }
  return SubmitFor(number, [args = *args]<typename T>(T) {
    for (int64_t row = 0; row < args.rows.num_rows; ++row) {
      const int32_t slot = args.rows.slot_of_row[row];
      if (slot < 0) continue;
      std::memcpy(At<T>(args.x, row * args.hidden),
                  At<T>(args.embedding, args.tokens[slot] * args.hidden),
                  static_cast<size_t>(args.hidden) * sizeof(T));
    }
  });
}

extern "C" int DapdCudaResidualNorm(const ResidualNormArgs* args,
                                    CudaNumber number,
                                    void* /*stream*/) {
  return SubmitFor(number, [args = *args]<typename T>(T) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
      T* x = At<T>(args.x, row * args.hidden);
      const bool has_delta = args.delta != nullptr || args.parts != nullptr;
      for (int64_t i = 0; i < args.hidden && has_delta; ++i) {
        const float bias =
            args.bias == nullptr ? 0.0F : ToFloat(*At<T>(args.bias, i));
        x[i] = AddResidual(x[i], DeltaOf<T>(args, row * args.hidden + i), bias);
      }
      const float scale =
          NormScale(SquareSum(x, args.hidden), args.hidden, args.eps);
      for (int64_t i = 0; i < args.hidden; ++i) {
        *At<T>(args.out, row * args.out_stride + i) =
            Normalized(ToFloat(x[i]), scale, *At<T>(args.weight, i));
      }
    }
  });
}

extern "C" int DapdCudaQkv(const QkvArgs* args,
                           CudaNumber number,
                           void* /*stream*/) {
  return SubmitFor(number, [args = *args]<typename T>(T) { RunQkv<T>(args); });
}

extern "C" int DapdCudaSwiGlu(const SwiGluArgs* args,
                              CudaNumber number,
                              void* /*stream*/) {
  return SubmitFor(number, [args = *args]<typename T>(T) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
      for (int64_t i = 0; i < args.intermediate; ++i) {
        const auto input = [&](int64_t column) {
          const float x = ToFloat(
              *At<T>(args.gate_up, row * 2 * args.intermediate + column));
          return args.bias == nullptr
                     ? x
                     : RoundedTo<T>(x + ToFloat(*At<T>(args.bias, column)));
        };
        *At<T>(args.out, row * args.out_stride + i) =
            Gated<T>(input(i), input(args.intermediate + i));
      }
    }
  });
}

extern "C" int DapdCudaDecodeAttention(const DecodeAttentionArgs* args,
                                       CudaNumber number,
                                       void* /*stream*/) {
  return SubmitFor(number,
                   [args = *args]<typename T>(T) { RunAttention<T>(args); });
}

extern "C" int DapdCudaSample(const SampleArgs* args, void* /*stream*/) {
  return Submit([args = *args] { RunSample(args); });
}

// Returns the size of the kernels' workspace; the functions on the host need no
// workspace.
extern "C" int64_t DapdCudaDecodeAttentionScratch(int64_t rows,
                                                  int64_t heads,
                                                  int64_t head_dim,
                                                  int64_t max_tokens) {
  return DecodeAttentionScratch(rows, heads, head_dim, max_tokens);
}
extern "C" int64_t DapdCudaSampleScratch(int64_t rows, int64_t vocab) {
  return SampleScratch(rows, vocab);
}

CudaGemm::~CudaGemm() = default;

std::string CudaGemm::Multiply(const CudaProduct& product,
                               cudaStream_t /*stream*/) {
  ++WorkOfCudaHost().library_products;
  Submit([product] { RunProduct(product); });
  return "";
}

extern "C" int DapdCudaHasBulkProducts() { return 1; }

extern "C" int DapdCudaBulkProduct(const CudaProduct* product, void* stream) {
  TORCH_CHECK(IsBulk(*product), "a product that the kernel does not take");
  ++WorkOfCudaHost().bulk_products;
  return DapdCudaSkinnyProduct(product, stream);
}

// Multiplies row by row: LibTorch's bits depend on the number of rows, the
// kernel's do not.
extern "C" int DapdCudaSkinnyProduct(const CudaProduct* product,
                                     void* /*stream*/) {
  // If the previous launch writes the last columns of x, the product multiplies
  // the columns before them meanwhile; `early` must be 0 otherwise.
  const auto* const x = static_cast<const char*>(product->x);
  const auto* const written = static_cast<const char*>(LastProduct());
  const bool is_of_x = written > x && written < x + 2 * product->inner;
  TORCH_CHECK(2 * product->early == (is_of_x ? written - x : 0),
              "early is what the launch in front does not write of x");
  const int launched = Submit([product = *product] {
    const int64_t y_bytes = product.float_result ? 4 : 2;
    for (int64_t i = 0; i < product.rows; ++i) {
      CudaProduct row = product;
      row.rows = 1;
      row.x = static_cast<const char*>(product.x) + i * product.x_stride * 2;
      row.y = static_cast<char*>(product.y) + i * product.y_stride * y_bytes;
      RunProduct(row);
    }
  });
  LastProduct() = product->y;
  return launched;
}

}  // namespace dapd
