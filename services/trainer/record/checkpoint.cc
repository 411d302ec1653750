#include "services/trainer/record/checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/aside.h"
#include "common/base/exit_code.h"
#include "common/base/failpoint.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/model/spec/model_card.h"
#include "common/model/weights/adapter.h"
#include "common/tensor/safetensors.h"
#include "services/trainer/record/checkpoint_folder.h"
#include "services/trainer/record/manifest.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 2;

// --- Writing -----------------------------------------------------------------

Json StateOf(const Policy& policy, const RunIdentity& identity) {
  Json state = {{"format", kFormat},
                {"step", policy.version()},
                {"snapshot_step", policy.snapshot_version()}};
  state.update(ToJson(identity));
  if (policy.updates() != policy.version()) {
    state["updates"] = policy.updates();
  }
  // The snapshot of version 0 is the base unless the run began with an adapter.
  if (policy.snapshot() != nullptr && policy.snapshot_version() == 0) {
    state["snapshot_is_start"] = true;
  }
  if (policy.ema() != nullptr) state["ema_step"] = policy.version();
  if (policy.previous() != nullptr) {
    state["previous_step"] = policy.version() - 1;
  }
  return state;
}

absl::Status WriteContents(const std::string& folder,
                           const Policy& policy,
                           const RunIdentity& identity,
                           const std::string& card) {
  const std::string live = JoinPath(folder, "adapter");
  RETURN_IF_ERROR(WriteAdapter(live, policy.live(), identity.base_model_path));
  if (!card.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(JoinPath(live, kModelCardFile), card));
  }
  DAPD_FAILPOINT("checkpoint.after_adapter");
  if (policy.snapshot() != nullptr) {
    RETURN_IF_ERROR(WriteAdapter(JoinPath(folder, "snapshot"),
                                 *policy.snapshot(),
                                 identity.base_model_path));
    DAPD_FAILPOINT("checkpoint.after_snapshot");
  }
  if (policy.ema() != nullptr) {
    RETURN_IF_ERROR(WriteAdapter(
        JoinPath(folder, "ema"), *policy.ema(), identity.base_model_path));
  }
  if (policy.previous() != nullptr) {
    RETURN_IF_ERROR(WriteAdapter(JoinPath(folder, "previous"),
                                 *policy.previous(),
                                 identity.base_model_path));
  }
  RETURN_IF_ERROR(WriteSafetensors(JoinPath(folder, "optimizer.safetensors"),
                                   policy.Moments(),
                                   {{"format", "pt"}}));
  DAPD_FAILPOINT("checkpoint.after_optimizer");
  RETURN_IF_ERROR(WriteFileAtomically(JoinPath(folder, "state.json"),
                                      StateOf(policy, identity).dump(2)));
  DAPD_FAILPOINT("checkpoint.after_state");
  RETURN_IF_ERROR(WriteManifest(folder));
  DAPD_FAILPOINT("checkpoint.after_manifest");
  return SyncDirectory(folder);
}

// --- Reading -----------------------------------------------------------------

absl::Status Damaged(const std::string& folder, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat("checkpoint ", folder, " is damaged: ", what));
}

absl::StatusOr<PolicyState> ReadContents(const std::string& folder,
                                         const nlohmann::json& state,
                                         const ModelConfig& model,
                                         at::Device device) {
  PolicyState policy;
  const auto version = JsonInteger(state.at("step"), 0);
  const auto snapshot = JsonInteger(state.at("snapshot_step"), 0);
  if (!version.ok() || !snapshot.ok()) {
    return Damaged(folder, "step or snapshot_step is not a count");
  }
  policy.version = *version;
  policy.snapshot_version = *snapshot;
  policy.updates = policy.version;
  if (state.contains("updates")) {
    const auto updates = JsonInteger(state.at("updates"), 0, policy.version);
    if (!updates.ok()) return Damaged(folder, "updates is not a count");
    policy.updates = *updates;
  }
  ASSIGN_OR_RETURN(policy.live,
                   ReadAdapter(JoinPath(folder, "adapter"), model, device));
  if (policy.snapshot_version > 0 || state.contains("snapshot_is_start")) {
    ASSIGN_OR_RETURN(policy.snapshot,
                     ReadAdapter(JoinPath(folder, "snapshot"), model, device));
  }
  if (state.contains("ema_step")) {
    ASSIGN_OR_RETURN(policy.ema,
                     ReadAdapter(JoinPath(folder, "ema"), model, device));
  }
  if (state.contains("previous_step")) {
    ASSIGN_OR_RETURN(policy.previous,
                     ReadAdapter(JoinPath(folder, "previous"), model, device));
  }
  ASSIGN_OR_RETURN(
      const SafetensorsFile moments,
      SafetensorsFile::Open(JoinPath(folder, "optimizer.safetensors")));
  for (const auto& [name, entry] : moments.entries()) {
    ASSIGN_OR_RETURN(HostTensor tensor, moments.Read(name));
    policy.moments.emplace_back(name, std::move(tensor));
  }
  return policy;
}

absl::StatusOr<PolicyState> LoadCheckpoint(const std::string& folder,
                                           const RunIdentity& identity,
                                           const ModelConfig& model,
                                           at::Device device) try {
  RETURN_IF_ERROR(VerifyManifest(folder));
  const std::string path = JoinPath(folder, "state.json");
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxStateBytes));
  ASSIGN_OR_RETURN(const nlohmann::json state, ParseJson(text, path));
  if (state.at("format") != kFormat) {
    return WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                            folder,
                            " has format ",
                            state.at("format").dump(),
                            ", this program reads ",
                            kFormat,
                            "; resume with the version that wrote it")),
                        ExitCode::kConfig);
  }
  RETURN_IF_ERROR(CompareIdentity(folder, state, identity));
  return ReadContents(folder, state, model, device);
} catch (const nlohmann::json::exception& error) {
  return Damaged(folder, error.what());
}

// Compares bit for bit. `a` was read back, on the CPU.
bool SameTensors(const Adapter& a, const Adapter& b) {
  const std::vector<at::Tensor> left = a.Tensors();
  const std::vector<at::Tensor> right = b.Tensors();
  return std::equal(left.begin(),
                    left.end(),
                    right.begin(),
                    right.end(),
                    [](const at::Tensor& x, const at::Tensor& y) {
                      return x.sizes() == y.sizes() &&
                             at::equal(x.detach(), y.detach().cpu());
                    });
}

// Returns whether both are the same adapter, or both are absent.
bool SameTensors(const std::optional<Adapter>& a, const Adapter* b) {
  if (!a.has_value() || b == nullptr) return !a.has_value() && b == nullptr;
  return SameTensors(*a, *b);
}

bool SameState(const PolicyState& read, const Policy& policy) {
  const NamedTensors moments = policy.Moments();
  std::map<std::string, absl::string_view> expected;
  for (const auto& [name, tensor] : moments) expected[name] = tensor.bytes();
  for (const auto& [name, tensor] : read.moments) {
    const auto found = expected.find(name);
    if (found == expected.end() || found->second != tensor.bytes())
      return false;
  }
  return SameTensors(read.snapshot, policy.snapshot()) &&
         SameTensors(read.ema, policy.ema()) &&
         SameTensors(read.previous, policy.previous()) &&
         expected.size() == read.moments.size() &&
         read.version == policy.version() &&
         read.snapshot_version == policy.snapshot_version() &&
         read.updates == policy.updates() &&
         SameTensors(read.live, policy.live());
}

// Returns whether an error in reading a checkpoint says that its files differ
// from the written files. Any other error (no right to them, a disk or a
// network that fails, no memory) says nothing of them.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsInvalidArgument(status) ||
         absl::IsNotFound(status) || absl::IsOutOfRange(status);
}

}  // namespace

absl::Status SaveCheckpoint(const std::string& folder,
                            const ModelConfig& model,
                            const Policy& policy,
                            const RunIdentity& identity,
                            int64_t keep,
                            const std::string& card) {
  const std::string target = JoinPath(folder, CheckpointName(policy.version()));
  if (FileExists(target)) {
    const absl::Status sound = VerifyManifest(target);
    if (sound.ok()) return absl::OkStatus();
    if (!IsDamage(sound)) return sound;
    LogWarning(std::string(sound.message()));
    RETURN_IF_ERROR(SetAsideDamaged(target).status());
  }
  const std::string aside = AsideOf(target);
  RemoveHalfCheckpoints(folder);
  DAPD_FAILPOINT("checkpoint.before_write");
  RETURN_IF_ERROR(CreateAsideFolder(aside));
  absl::Status written = WriteContents(aside, policy, identity, card);
  if (written.ok()) {
    // The checkpoint is read back on the CPU, because the policy's device may
    // have no memory left for it.
    const absl::StatusOr<PolicyState> read =
        LoadCheckpoint(aside, identity, model, at::kCPU);
    written = read.status();
    if (IsDamage(written)) {
      written = Damaged(aside, std::string(written.message()));
    } else if (read.ok() && !SameState(*read, policy)) {
      written = Damaged(aside, "it reads back differently");
    }
  }
  if (!written.ok()) {
    RemoveAside(aside);
    return written;
  }
  DAPD_FAILPOINT("checkpoint.before_rename");
  RETURN_IF_ERROR(RenameAside(aside, target));
  DAPD_FAILPOINT("checkpoint.after_rename");
  RETURN_IF_ERROR(SyncDirectory(folder));
  DAPD_FAILPOINT("checkpoint.after_sync");
  RemoveOldestCheckpoints(folder, keep);
  DAPD_FAILPOINT("checkpoint.after_prune");
  return absl::OkStatus();
}

absl::StatusOr<std::optional<PolicyState>> LoadNewestCheckpoint(
    const std::string& folder,
    const RunIdentity& identity,
    const ModelConfig& model,
    at::Device device) {
  ASSIGN_OR_RETURN(Checkpoints checkpoints, ListCheckpoints(folder));
  std::vector<std::string>& left = checkpoints.complete;
  if (left.empty() && checkpoints.damaged.empty()) return std::nullopt;
  absl::Status last;
  while (!left.empty()) {
    const std::string newest = left.back();
    left.pop_back();
    auto state = LoadCheckpoint(newest, identity, model, device);
    if (state.ok()) return std::optional<PolicyState>(*std::move(state));
    if (!IsDamage(state.status())) return state.status();
    last = state.status();
    LogWarning(absl::StrCat(
        last.message(),
        "; it is set aside, and the checkpoint before it is used"));
    RETURN_IF_ERROR(SetAsideDamaged(newest).status());
  }
  // This is also an error if an earlier attempt set the last checkpoint aside:
  // a run that is kept running must not begin anew by itself.
  return absl::DataLossError(absl::StrCat(
      "no checkpoint in ",
      folder,
      " can be used; ",
      last.ok() ? "all of them were found to be damaged earlier"
                : absl::StrCat("the last one: ", std::string(last.message())),
      "; restore one from a copy, or start a new run with another run.name"));
}

}  // namespace dapd
