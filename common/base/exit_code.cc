#include "common/base/exit_code.h"

#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace dapd {
namespace {
constexpr char kPayloadUrl[] = "dapd/exit_code";
}  // namespace

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  if (!status.ok() && !status.GetPayload(kPayloadUrl).has_value()) {
    status.SetPayload(kPayloadUrl,
                      absl::Cord(absl::StrCat(static_cast<int>(code))));
  }
  return status;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kOk;
  if (auto payload = status.GetPayload(kPayloadUrl); payload.has_value()) {
    int code = 0;
    if (absl::SimpleAtoi(std::string(*payload), &code)) {
      return static_cast<ExitCode>(code);
    }
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return ExitCode::kData;
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kConfig;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kPeerUnavailable;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kRunLost;
    case absl::StatusCode::kAborted:
      return ExitCode::kRestart;
    case absl::StatusCode::kCancelled:
      return ExitCode::kInterrupted;
    default:
      return ExitCode::kInternal;
  }
}

absl::Status ConfigError(const std::string& message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kConfig);
}

absl::Status DataError(const std::string& message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kData);
}

}  // namespace dapd
