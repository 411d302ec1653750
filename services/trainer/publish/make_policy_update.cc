#include "services/trainer/publish/make_policy_update.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/model/reference/token_logprobs.h"
#include "common/rpc/transfer/chunk_stream.h"

namespace dapd {
namespace {

// The tolerance covers another order of summation on another machine; other
// weights differ by far more.
constexpr ProbeTolerance kToleranceFloat32 = {1e-3F, 1e-3F};
// Two bfloat16 decoders round at different places: on SmolLM2-135M they differ
// by 0.09 over all tokens and by 0.4 on single unlikely ones, and each differs
// as much from float32 as from the other.
constexpr ProbeTolerance kToleranceBFloat16 = {2.0F, 0.25F};

// Rounded keys and values add to that: on SmolLM2-135M and over the 15 scored
// tokens of a short text 0.16, and 0.37 for the worst of 100 texts.
constexpr ProbeTolerance kToleranceFloat8 = {3.0F, 0.6F};

}  // namespace

absl::StatusOr<std::shared_ptr<const PolicyUpdate>> MakePolicyUpdate(
    const ModelWeights& weights,
    const Adapter* adapter,
    int64_t version,
    const std::string& key,
    const std::vector<int32_t>& probe_ids,
    DigestKind digest_kind,
    KvPrecision kv_precision) {
  auto update = std::make_shared<PolicyUpdate>();
  update->version = version;
  update->key = key;
  update->is_base = adapter == nullptr;
  if (adapter != nullptr) {
    ASSIGN_OR_RETURN(
        update->adapter,
        SerializeAdapter(*adapter, /*base_model_path=*/"", digest_kind));
    update->checksums = std::make_shared<ChunkChecksums>(
        NumChunks(update->adapter.tensors.size()));
  }
  update->probe_ids = probe_ids;
  ProbePolicy(weights, adapter, update.get());
  if (kv_precision == KvPrecision::kFloat8) {
    update->probe_tolerance = kToleranceFloat8;
  }
  return update;
}

void ProbePolicy(const ModelWeights& weights,
                 const Adapter* adapter,
                 PolicyUpdate* update) {
  const at::Tensor logprobs =
      TokenLogprobs(weights, adapter, update->probe_ids);
  update->probe_logprobs.assign(logprobs.data_ptr<float>(),
                                logprobs.data_ptr<float>() + logprobs.numel());
  update->probe_tolerance =
      weights.dtype() == at::kBFloat16 ? kToleranceBFloat16 : kToleranceFloat32;
}

}  // namespace dapd
