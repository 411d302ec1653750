#include "services/cli/start_checks.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/file_lock.h"
#include "common/base/files.h"
#include "common/base/list_folder.h"
#include "common/base/status_macros.h"
#include "common/base/thread_share.h"
#include "common/config/preset_terms.h"
#include "common/config/run_folder.h"
#include "common/data/model_text.h"
#include "common/data/teacher_text.h"
#include "common/hub/hub_id.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/peft_config.h"
#include "common/model/weights/adapter_check.h"
#include "common/model/weights/weight_files.h"
#include "services/cli/run_room.h"

namespace dapd {
namespace {

// The fewest threads of a service on a machine of two cores, beside its compute
// threads: threads of gRPC, and threads that listen, watch and read.
constexpr int64_t kThreadsOfService = 16;
// The files of a service: libraries, files and sockets, also for each process
// that it talks to.
constexpr int64_t kFilesOfService = 20;
constexpr int64_t kFilesOfPeer = 2;

bool LooksLikeWeights(const std::string& name) {
  constexpr std::array kEnds = {".safetensors",
                                ".safetensors.index.json",
                                ".bin",
                                ".pt",
                                ".pth",
                                ".gguf",
                                ".ckpt",
                                ".h5",
                                ".msgpack",
                                ".incomplete"};
  return std::ranges::any_of(
      kEnds, [&](const char* end) { return absl::EndsWith(name, end); });
}

}  // namespace

absl::StatusOr<bool> CheckWeights(const ModelConfig& model) {
  const absl::Status status = OpenWeightFiles(model).status();
  if (status.ok()) return true;
  if (absl::IsNotFound(status)) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names,
                     ListFolder(model.folder));
    if (std::ranges::none_of(names, LooksLikeWeights)) return false;
  }
  return status;
}

absl::Status CheckFurtherTeachers(const Config& config) {
  if (TeachersAsked(config).empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ModelText student, ReadModelText(config));
  for (const FurtherTeacher& teacher : student.teachers) {
    absl::Status status = OpenWeightFiles(teacher.model).status();
    if (status.ok() && !teacher.adapter.empty()) {
      status = CheckAdapterFiles(teacher.adapter, teacher.model).status();
    }
    RETURN_IF_ERROR(OfTeacher(teacher.settings, status));
  }
  return CheckTeacherText(student.teachers, student);
}

std::string OtherBaseWarning(const Config& config, const ModelConfig& model) {
  const auto folder = FindAdapterFolder(config.lora.start_from);
  if (!folder.ok()) return "";
  const auto adapter = ReadPeftConfig(*folder, model);
  const auto name = BaseModelName(config.model.path, config.model.name);
  if (!adapter.ok() || !name.ok() || FileExists(adapter->base) ||
      FileExists(*name)) {
    return "";
  }
  const std::optional<HubId> theirs = ParseHubId(adapter->base);
  const std::optional<HubId> ours = ParseHubId(*name);
  if (!theirs.has_value() || !ours.has_value() || theirs->name == ours->name) {
    return "";
  }
  return absl::StrCat("lora.start_from: the adapter in ",
                      *folder,
                      " says that it was trained on ",
                      theirs->name,
                      ", and the base is ",
                      ours->name);
}

ProcessNeeds NeedsOfRun(const Config& config) {
  const int64_t workers =
      (AsksRolloutWorkers(config)
           ? config.run.rollout_workers * config.rollout.tensor_parallel
           : 0) +
      (AsksTeachers(config) ? config.run.teacher_workers : 0);
  const int64_t processes =
      workers + NumFurtherWorkers(config) + config.trainer.ranks;
  const int64_t threads =
      config.run.num_threads > 0 ? config.run.num_threads : ThreadsOfEach(1);
  return {.threads = processes * (kThreadsOfService + threads),
          .files = kFilesOfService + kFilesOfPeer * processes};
}

absl::Status CheckMachine(const Config& config) {
  RETURN_IF_ERROR(CheckProcessLimits(NeedsOfRun(config)));
  return CheckLocks(ExistingFolder(FolderOf(config.run)));
}

}  // namespace dapd
