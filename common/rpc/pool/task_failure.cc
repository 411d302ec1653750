#include "common/rpc/pool/task_failure.h"

#include <utility>

#include "absl/strings/cord.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {
constexpr char kTaskFailureUrl[] = "dapd/task_failure";
}  // namespace

absl::Status TaskFailure(absl::StatusCode code, const std::string& message) {
  absl::Status failure(code == absl::StatusCode::kCancelled
                           ? absl::StatusCode::kUnavailable
                           : code,
                       message);
  failure.SetPayload(kTaskFailureUrl, absl::Cord());
  return WithExitCode(std::move(failure), ExitCode::kInternal);
}

bool IsTaskFailure(const absl::Status& status) {
  return status.GetPayload(kTaskFailureUrl).has_value();
}

}  // namespace dapd
