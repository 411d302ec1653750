#include "common/rpc/pool/worker_pool_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/status_macros.h"
#include "common/config/validate_config.h"
#include "common/rpc/pool/task_failure.h"

namespace dapd {

const char* TaskOutcomeName(TaskOutcome outcome) {
  switch (outcome) {
    case TaskOutcome::kAccepted:
      return "accepted";
    case TaskOutcome::kDuplicate:
      return "duplicate";
    case TaskOutcome::kStale:
      return "stale";
    case TaskOutcome::kLost:
      return "lost";
    case TaskOutcome::kTimeout:
      return "timeout";
    case TaskOutcome::kFailed:
      return "failed";
    case TaskOutcome::kHedged:
      return "hedged";
  }
  return "unknown";
}

const char* NameOf(WorkerStage stage) {
  switch (stage) {
    case WorkerStage::kConnecting:
      return "connecting";
    case WorkerStage::kLoading:
      return "loading";
    case WorkerStage::kReady:
      return "ready";
    case WorkerStage::kLost:
      return "lost";
  }
  return "unknown";
}

bool IsFinalError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsOutOfRange(status) ||
         absl::IsUnimplemented(status);
}

absl::Status ShortError(const absl::Status& status) {
  constexpr size_t kMaxBytes = 4096;
  // gRPC's whole message if the other end vanishes in the middle of a stream.
  if (status.message() == "CANCELLED") {
    return {status.code(), "the connection broke"};
  }
  if (status.message().size() <= kMaxBytes) return status;
  return {status.code(),
          absl::StrCat(status.message().substr(0, kMaxBytes), "...")};
}

absl::Status DescribeTaskError(const std::string& role,
                               uint64_t task_id,
                               const std::string& address,
                               const absl::Status& status) {
  return TaskFailure(status.code(),
                     absl::StrCat(role,
                                  " worker ",
                                  address,
                                  " refused task ",
                                  task_id,
                                  ": ",
                                  std::string(status.message())));
}

absl::Status OfWorker(const std::string& role,
                      const std::string& address,
                      const absl::Status& why) {
  return {why.code(),
          absl::StrCat(
              role, " worker ", address, ": ", std::string(why.message()))};
}

std::string DescribeLoss(const std::string& role,
                         const std::string& address,
                         bool was_ready,
                         int64_t returned_tasks,
                         const absl::Status& why) {
  std::string line = absl::StrCat(role,
                                  " worker ",
                                  address,
                                  was_ready ? " lost: " : " not usable yet: ",
                                  std::string(why.message()));
  if (returned_tasks > 0) {
    absl::StrAppend(&line, "; its ", returned_tasks, " tasks will be repeated");
  }
  return line;
}

absl::Status CheckWorkerAddresses(const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    if (AddressFilePath(address).has_value()) continue;
    RETURN_IF_ERROR(ParseHostPort(address).status());
  }
  return absl::OkStatus();
}

int64_t NewestVersion(const std::map<WeightSet, int64_t>& versions) {
  int64_t newest = -1;
  for (const auto& [set, version] : versions) {
    newest = std::max(newest, version);
  }
  return newest;
}

std::string DescribeWorkers(
    const WorkerPoolOptions& options,
    const std::vector<WorkerState>& states,
    const std::map<std::string, std::string>& resolve_errors) {
  std::vector<std::string> lines;
  for (const auto& [address, error] : resolve_errors) {
    lines.push_back(absl::StrCat(address, ": ", error));
  }
  for (const WorkerState& state : states) {
    lines.push_back(absl::StrCat(state.address,
                                 " is ",
                                 NameOf(state.stage),
                                 state.last_error.empty() ? "" : ": ",
                                 state.last_error));
  }
  const std::string remedy =
      options.teacher.empty()
          ? absl::StrCat("start dapd-",
                         options.role,
                         " there with the same model, or correct ",
                         options.role,
                         ".addresses")
          : absl::StrCat("start dapd-teacher --teacher ",
                         options.teacher,
                         " there, or correct its addresses in teachers");
  return absl::StrCat(
      "no usable ",
      options.role,
      " worker at ",
      absl::StrJoin(options.addresses, ", "),
      " (",
      lines.empty() ? "no address found" : absl::StrJoin(lines, "; "),
      "); ",
      remedy);
}

}  // namespace dapd
