#include "services/cli/restarts.h"

#include <algorithm>

#include "common/base/exit_code.h"
#include "common/base/process_end.h"

namespace dapd {
namespace {

constexpr int kMaxRestarts = 20;
constexpr int kMaxCrashes = 3;

}  // namespace

bool WouldEndAgain(int code) {
  return code == static_cast<int>(ExitCode::kConfig) ||
         code == static_cast<int>(ExitCode::kData) ||
         code == static_cast<int>(ExitCode::kUsage);
}

std::optional<absl::Time> Restarts::Ended(int code,
                                          bool has_worked,
                                          absl::Time now) {
  if (has_worked) crashes_ = 0;
  if (has_worked || now - started_ >= options_.lasting) {
    restarts_ = 0;
    ends_ = 0;
    pause_ = options_.first_pause;
  }
  ++ends_;
  if (IsCrash(code)) ++crashes_;
  if (crashes_ >= kMaxCrashes || restarts_ >= kMaxRestarts) return std::nullopt;
  ++restarts_;
  const absl::Time next = now + pause_;
  pause_ = std::min(2 * pause_, options_.longest_pause);
  return next;
}

}  // namespace dapd
