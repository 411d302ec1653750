#include "common/model/spec/gpu_memory_wait.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);

}  // namespace

absl::Status AwaitGpuMemory(
    const std::function<absl::Status()>& check,
    absl::Duration patience,
    const std::function<bool(absl::Duration)>& wait_for_stop) {
  absl::Status status = check();
  if (!absl::IsResourceExhausted(status)) return status;
  LogWarning(absl::StrCat("waiting up to ",
                          absl::FormatDuration(patience),
                          " (run.gpu_wait_seconds) for memory of a GPU: ",
                          std::string(status.message())));
  const absl::Time start = SteadyNow();
  while (absl::IsResourceExhausted(status)) {
    const absl::Duration left = patience - (SteadyNow() - start);
    if (left <= absl::ZeroDuration()) {
      return absl::ResourceExhaustedError(
          absl::StrCat(std::string(status.message()),
                       "; it did not become free within ",
                       absl::FormatDuration(patience),
                       " (run.gpu_wait_seconds)"));
    }
    if (wait_for_stop(std::min(left, kInterval))) {
      return absl::CancelledError("stopped while waiting for memory of a GPU");
    }
    status = check();
  }
  if (status.ok()) LogInfo("the memory of the GPU is free now");
  return status;
}

}  // namespace dapd
