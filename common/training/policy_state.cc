#include "common/training/policy_state.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/model/weights/adapter.h"
#include "common/tensor/safetensors.h"

namespace dapd {
namespace {

nlohmann::ordered_json Describe(const SerializedAdapter& adapter) {
  return {{"bytes", adapter.tensors.size()},
          {"config_json", adapter.config_json},
          {"digest", adapter.digest}};
}

// Removes `size` bytes from the front of `*rest` and returns them.
absl::StatusOr<std::string> Cut(absl::string_view* rest, uint64_t size) {
  if (size > rest->size()) {
    return absl::DataLossError("the policy's state ends too early");
  }
  std::string part(rest->substr(0, size));
  rest->remove_prefix(size);
  return part;
}

absl::StatusOr<Adapter> ParsePart(const nlohmann::json& described,
                                  absl::string_view* rest,
                                  const ModelConfig& model,
                                  at::Device device) {
  SerializedAdapter adapter;
  adapter.config_json = described.at("config_json");
  adapter.digest = described.at("digest");
  ASSIGN_OR_RETURN(adapter.tensors, Cut(rest, described.at("bytes")));
  return ParseAdapter(adapter, model, device);
}

}  // namespace

// The bytes are one line of JSON with the lengths of the parts after it, then
// these parts: live adapter, snapshot (empty: the base), moving average and
// previous adapter (each empty: none is kept), moments.
absl::StatusOr<std::string> SerializePolicyState(const Policy& policy) {
  ASSIGN_OR_RETURN(const SerializedAdapter live,
                   SerializeAdapter(policy.live(), ""));
  SerializedAdapter snapshot;
  if (policy.snapshot() != nullptr) {
    ASSIGN_OR_RETURN(snapshot, SerializeAdapter(*policy.snapshot(), ""));
  }
  SerializedAdapter ema;
  if (policy.ema() != nullptr) {
    ASSIGN_OR_RETURN(ema, SerializeAdapter(*policy.ema(), ""));
  }
  SerializedAdapter previous;
  if (policy.previous() != nullptr) {
    ASSIGN_OR_RETURN(previous, SerializeAdapter(*policy.previous(), ""));
  }
  ASSIGN_OR_RETURN(const std::string moments,
                   SerializeSafetensors(policy.Moments(), {}));
  const nlohmann::ordered_json header = {
      {"version", policy.version()},
      {"snapshot_version", policy.snapshot_version()},
      {"updates", policy.updates()},
      {"live", Describe(live)},
      {"snapshot", Describe(snapshot)},
      {"ema", Describe(ema)},
      {"previous", Describe(previous)}};
  return absl::StrCat(header.dump(),
                      "\n",
                      live.tensors.view(),
                      snapshot.tensors.view(),
                      ema.tensors.view(),
                      previous.tensors.view(),
                      moments);
}

absl::StatusOr<PolicyState> ParsePolicyState(const std::string& bytes,
                                             const ModelConfig& model,
                                             at::Device device) try {
  const size_t end = bytes.find('\n');
  if (end == std::string::npos) {
    return absl::DataLossError("the policy's state has no header");
  }
  ASSIGN_OR_RETURN(
      const nlohmann::json header,
      ParseJson(absl::string_view(bytes).substr(0, end), "the policy's state"));
  absl::string_view rest = absl::string_view(bytes).substr(end + 1);
  PolicyState state;
  state.version = header.at("version");
  state.snapshot_version = header.at("snapshot_version");
  state.updates = header.at("updates");
  ASSIGN_OR_RETURN(state.live,
                   ParsePart(header.at("live"), &rest, model, device));
  if (header.at("snapshot").at("bytes") != 0) {
    ASSIGN_OR_RETURN(state.snapshot,
                     ParsePart(header.at("snapshot"), &rest, model, device));
  }
  if (header.at("ema").at("bytes") != 0) {
    ASSIGN_OR_RETURN(state.ema,
                     ParsePart(header.at("ema"), &rest, model, device));
  }
  if (header.at("previous").at("bytes") != 0) {
    ASSIGN_OR_RETURN(state.previous,
                     ParsePart(header.at("previous"), &rest, model, device));
  }
  ASSIGN_OR_RETURN(state.moments,
                   ParseSafetensors(rest, "the policy's moments"));
  return state;
} catch (const nlohmann::json::exception& error) {
  return absl::DataLossError(
      absl::StrCat("the policy's state cannot be read: ", error.what()));
}

}  // namespace dapd
