#include "common/base/device_watch.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"

namespace dapd {

void DeviceWatch::Note(const absl::Status& status) {
  failures_ = absl::IsInternal(status) ? failures_ + 1 : 0;
  if (failures_ >= kBrokenAfter && on_broken_) on_broken_(status);
}

void EndForRestart(const absl::Status& why) {
  LogError(absl::StrCat(DeviceWatch::kBrokenAfter,
                        " computations failed one after another (",
                        std::string(why.message()),
                        "); this process ends, to be started again"));
  ::_exit(static_cast<int>(ExitCode::kRestart));
}

}  // namespace dapd
