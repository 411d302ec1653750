// The launches of one decode step: what CudaDecoder captures in its graphs.
//
//   x = embedding[token]
//   per layer: n = norm(x += delta); q, k, v = n; cache k, v; attend; delta = o
//              m = norm(x += delta); gate, up = m; delta = down
//   logits = head(norm(x += delta)); token = sample(logits); position += 1
//
// 9 launches per layer, 13 with an adapter in its own columns; 5 around them.
#pragma once

#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <vector>

#include "common/generation/cuda/cuda_decoder.h"
#include "common/generation/cuda/cuda_decoder_memory.h"
#include "common/generation/cuda/cuda_outcome.h"
#include "common/kernels/cuda/decoder_layer.h"
#include "common/kernels/cuda/gemm.h"

namespace dapd {

// What a graph is captured for.
struct DecodeBucket {
  int64_t rows = 0;
  int64_t max_tokens = 0;  // of the longest running sequence

  auto operator<=>(const DecodeBucket&) const = default;
};

// Not thread-safe. `memory` must outlive it.
class CudaDecodeStep {
 public:
  CudaDecodeStep(const CudaDecoderSpec& spec, const CudaDecoderMemory& memory)
      : spec_(spec),
        layers_(spec.layers, spec.layers + spec.num_layers),
        memory_(memory),
        gemm_(memory.gemm_workspace) {}

  // A whole step of the first rows.
  CudaOutcome Run(const DecodeBucket& bucket, cudaStream_t stream);
  // Only its end: the next tokens of the first `rows` from their logits.
  CudaOutcome Sample(int64_t rows, const float* logits, cudaStream_t stream);

 private:
  // One pass through Run.
  struct Pass {
    DecodeBucket bucket;
    CudaRows rows;
    CudaKvPages cache;
    ResidualNormArgs norm;
    cudaStream_t stream = nullptr;
    CudaOutcome outcome;
  };
  void Norm(Pass* pass, const void* weight, void* out, int64_t out_stride);
  // y = linear(x); x [rows, in + lora], of which the first `in` are set.
  void Multiply(Pass* pass, const CudaLinear& linear, void* x, void* y);
  void RunAttention(Pass* pass, const CudaDecoderLayer& layer);
  void RunMlp(Pass* pass, const CudaDecoderLayer& layer);

  const CudaDecoderSpec spec_;
  const std::vector<CudaDecoderLayer> layers_;
  const CudaDecoderMemory& memory_;
  CudaGemm gemm_;
};

}  // namespace dapd
