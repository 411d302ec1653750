#include "common/generation/cuda/make_cuda_decode_backend.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/generation/cuda/cuda_decode_backend.h"
#include "common/kernels/cuda/decoder_layer.h"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/float8.h"
#include "common/model/spec/executor_support.h"

namespace dapd {
namespace {

// Returns why the kernels do not take this model, or an empty string.
std::string MisfitOf(const ModelWeights& weights,
                     const CudaDecodeOptions& options) {
  const ModelConfig& config = weights.config;
  if (std::string misfit = Misfit(Executor::kCudaDecoder, config);
      !misfit.empty()) {
    return misfit;
  }
  if (!FitsDecodeAttention(
          config.num_heads, config.num_kv_heads, config.head_dim)) {
    return absl::StrCat(config.num_heads,
                        " heads over ",
                        config.num_kv_heads,
                        " of dimension ",
                        config.head_dim,
                        "; head_dim must be a multiple of 8 up to 256 and at "
                        "most 8 heads may share one key-value head");
  }
  if (options.kv_float8 &&
      (weights.dtype() != at::kBFloat16 || !FitsFloat8(config.head_dim))) {
    return "keys and values in float8 need a bfloat16 model with a head_dim "
           "that is a multiple of 16";
  }
  if (config.hidden_size % 8 != 0 || config.intermediate_size % 8 != 0) {
    return "hidden and intermediate size must be multiples of 8";
  }
  if (config.hidden_size > kMaxDecodeHidden) {
    return absl::StrCat(
        "hidden size ", config.hidden_size, " is above ", kMaxDecodeHidden);
  }
  return "";
}

// Returns nothing if the kernels cannot be used, and logs the reason.
std::optional<CudaDecodeApi> ApiFor(const ModelWeights& weights,
                                    const CudaDecodeOptions& options) {
  const std::string misfit = MisfitOf(weights, options);
  const std::optional<CudaDecodeApi> api = FindCudaDecodeApi();
  if (misfit.empty() && api) return api;
  LogWarning(absl::StrCat(
      "decoding ",
      ByLibTorch(misfit.empty() ? "libdapd_cuda.so was built without nvcc"
                                : misfit)));
  return std::nullopt;
}

}  // namespace

std::unique_ptr<DecodeBackend> MakeCudaDecodeBackend(
    std::shared_ptr<const ModelWeights>& weights,
    const CudaDecodeOptions& options) {
  const std::optional<CudaDecodeApi> api = ApiFor(*weights, options);
  if (!api) return nullptr;
  ModelWeights taken = *weights;
  if (options.adapter_form.value_or(FormFor(taken.dtype())) ==
      AdapterForm::kColumns) {
    weights.reset();
    return std::make_unique<CudaDecodeBackend>(std::move(taken), options, *api);
  }
  try {
    auto backend =
        std::make_unique<CudaDecodeBackend>(std::move(taken), options, *api);
    weights.reset();
    return backend;
  } catch (const c10::OutOfMemoryError& error) {
    LogWarning(absl::StrCat(
        "decoding ",
        ByLibTorch(absl::StrCat(
            "the GPU has no room for a second form of the weights: ",
            error.what_without_backtrace()))));
    return nullptr;
  }
}

std::unique_ptr<DecodeBackend> MakeSharedCudaDecodeBackend(
    std::shared_ptr<const ShardedWeights>& share,
    const std::shared_ptr<DeviceGroup>& devices,
    Collective& collective,
    const CudaDecodeOptions& options) {
  ModelWeights own = CudaWeightsOfRank(*share);
  const std::optional<CudaDecodeApi> api = ApiFor(own, options);
  if (!api) return nullptr;
  CudaDecodeRanks ranks{
      share->shard.config, share->layout, devices, &collective};
  share.reset();
  return std::make_unique<CudaDecodeBackend>(
      std::move(own), options, *api, std::move(ranks));
}

}  // namespace dapd
