// The launches of one decode step, which CudaDecoder captures in its graphs.
//
//   x = embedding[token]
//   per layer: n = norm(x += delta); q, k, v = n; cache k, v; attend; delta = o
//              m = norm(x += delta); gate, up = m; delta = down
//   logits = head(norm(x += delta)); token = sample(logits); position += 1
//
// A layer has 9 launches, or 13 with an adapter in its own columns; 5 launches
// are outside the layers. Where ranks share the model, there are two gathers
// per layer, after the products that give delta, and one of the logits.
#pragma once

#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <vector>

#include "common/generation/cuda/cuda_decoder.h"
#include "common/generation/cuda/cuda_decoder_memory.h"
#include "common/generation/cuda/cuda_outcome.h"
#include "common/kernels/cuda/bulk_product.h"
#include "common/kernels/cuda/decoder_layer.h"
#include "common/kernels/cuda/gemm.h"

namespace dapd {

// The shape that a graph is captured for.
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
        bulk_products_(spec.bulk_products && DapdCudaHasBulkProducts() != 0),
        layers_(spec.layers, spec.layers + spec.num_layers),
        memory_(memory),
        gemm_(memory.gemm_workspace) {}

  // Launches a whole step of the first rows. A launch that fails leaves out
  // only itself and the sampling: other ranks wait for the gathers.
  CudaOutcome Run(const DecodeBucket& bucket, cudaStream_t stream);
  // Launches only the end of a step: samples the next tokens of the first
  // `rows` rows from their logits, which a gather may have produced.
  CudaOutcome Sample(int64_t rows,
                     const float* logits,
                     cudaStream_t stream,
                     bool behind_a_gather = false);

 private:
  // State of one call of Run.
  struct Pass {
    DecodeBucket bucket;
    CudaRows rows;
    CudaKvPages cache;
    ResidualNormArgs norm;
    cudaStream_t stream = nullptr;
    CudaOutcome outcome;
  };
  void Norm(Pass* pass, const void* weight, void* out, int64_t out_stride);
  // Uses the kernel for few rows if that takes the product, otherwise cuBLASLt.
  void Launch(Pass* pass, const CudaProduct& product);
  // Computes y = linear(x). Of x [rows, in + lora] the first `in` columns are
  // set. y is float32 if `float_result`.
  void Multiply(Pass* pass,
                const CudaLinear& linear,
                void* x,
                void* y,
                bool float_result = false);
  // Computes what the next norm adds to the residual stream: linear(x), or with
  // several ranks the parts of all ranks.
  void MultiplyDelta(Pass* pass, const CudaLinear& linear, void* x);
  void MultiplyHead(Pass* pass);
  // `all` has `rows` rows that are `stride` floats apart. In each row every
  // rank has written `width` floats at its own place; afterwards every rank has
  // the floats of all ranks.
  void Gather(
      Pass* pass, float* all, int64_t rows, int64_t width, int64_t stride);
  void RunAttention(Pass* pass, const CudaDecoderLayer& layer);
  void RunMlp(Pass* pass, const CudaDecoderLayer& layer);

  const CudaDecoderSpec spec_;
  const bool bulk_products_;
  const std::vector<CudaDecoderLayer> layers_;
  const CudaDecoderMemory& memory_;
  CudaGemm gemm_;
  std::vector<NcclGather> gathers_;  // of one launch
};

}  // namespace dapd
