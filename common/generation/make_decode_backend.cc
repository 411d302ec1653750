#include "common/generation/make_decode_backend.h"

#include <utility>

#include "common/generation/aten/aten_backend.h"
#include "common/generation/cpu/cpu_decode_backend.h"
#include "common/generation/cuda/make_cuda_decode_backend.h"
#include "common/model/spec/executor_support.h"

namespace dapd {
namespace {

CudaDecodeOptions CudaOptionsOf(const DecodeBackendOptions& options) {
  return {.slots = options.slots,
          .num_tokens = options.num_tokens,
          .kv_float8 = options.kv_float8,
          .bulk_products = options.bulk_products};
}

}  // namespace

std::unique_ptr<DecodeBackend> MakeDecodeBackend(
    std::shared_ptr<const ModelWeights> weights,
    const DecodeBackendOptions& options) {
  if (weights->device().is_cuda()) {
    std::unique_ptr<DecodeBackend> graphs =
        MakeCudaDecodeBackend(weights, CudaOptionsOf(options));
    if (graphs != nullptr) return graphs;
  }
  if (weights->device().is_cpu() && !options.kv_float8 &&
      WarnUnlessSupported("decoding", Executor::kCpuDecoder, weights->config)) {
    return std::make_unique<CpuDecodeBackend>(
        PackModel(*weights),
        CpuDecodeBackendOptions{.slots = options.slots,
                                .num_tokens = options.num_tokens});
  }
  return std::make_unique<AtenBackend>(DecoderModel(std::move(weights)),
                                       options.slots,
                                       options.num_tokens,
                                       options.kv_float8);
}

std::unique_ptr<DecodeBackend> MakeSharedDecodeBackend(
    std::shared_ptr<const ShardedWeights> share,
    std::shared_ptr<DeviceGroup> devices,
    Collective& collective,
    const DecodeBackendOptions& options) {
  if (share->shard.device().is_cuda()) {
    std::unique_ptr<DecodeBackend> graphs = MakeSharedCudaDecodeBackend(
        share, devices, collective, CudaOptionsOf(options));
    if (graphs != nullptr) return graphs;
  }
  return std::make_unique<AtenBackend>(DecoderModel(*share, std::move(devices)),
                                       options.slots,
                                       options.num_tokens,
                                       options.kv_float8);
}

}  // namespace dapd
