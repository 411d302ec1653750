// Packs weights for the workers: the adapter's bytes, and a probe computed by
// the trainer's own forward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/content_digest.h"
#include "common/config/config.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "common/rpc/transfer/policy_update.h"

namespace dapd {

// `adapter`: null for the base. `key`: PolicyUpdate::key. `probe_ids`: at least
// 2 tokens, fixed for the run. The bytes do not contain the base's path, so
// their digest is the same on every machine. `kv_precision`: of the workers'
// keys and values; the tolerance of the probe is larger if they are rounded.
absl::StatusOr<std::shared_ptr<const PolicyUpdate>> MakePolicyUpdate(
    const ModelWeights& weights,
    const Adapter* adapter,
    int64_t version,
    const std::string& key,
    const std::vector<int32_t>& probe_ids,
    DigestKind digest_kind,
    KvPrecision kv_precision = KvPrecision::kModel);

// Computes the probe of `probe_ids` by a forward pass with `adapter`.
void ProbePolicy(const ModelWeights& weights,
                 const Adapter* adapter,
                 PolicyUpdate* update);

}  // namespace dapd
