#include "services/trainer/record/full_disk_rule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "services/trainer/record/disk_wait.h"
#include "services/trainer/status/status_message.h"

namespace dapd {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(10);
constexpr absl::Duration kReminder = absl::Minutes(5);

bool IsOfDisk(const absl::Status& status) {
  return IsFileError(status) || absl::IsDataLoss(status);
}

}  // namespace

FullDiskRule::FullDiskRule(std::string run_folder,
                           OnWriteError on_write_error,
                           std::function<bool(absl::Duration)> wait_for_stop,
                           TrainerMetrics* metrics,
                           TrainerStatus* status)
    : run_folder_(std::move(run_folder)),
      watch_(run_folder_),
      on_write_error_(on_write_error),
      wait_for_stop_(std::move(wait_for_stop)),
      metrics_(metrics),
      status_(status) {}

absl::Status FullDiskRule::Write(const std::string& what,
                                 const std::function<absl::Status()>& write) {
  if (on_write_error_ != OnWriteError::kContinue) return MustWrite(what, write);
  RETURN_IF_ERROR(watch_.Check());
  if (const absl::Status status = write(); !status.ok()) {
    if (!IsOfDisk(status)) return status;
    metrics_->RecordWriteFailure();
    LogWarning(absl::StrCat(what,
                            " could not be written; training continues without "
                            "it (checkpoint.on_write_error: continue): ",
                            std::string(status.message())));
  }
  return absl::OkStatus();
}

absl::Status FullDiskRule::MustWrite(
    const std::string& what, const std::function<absl::Status()>& write) {
  RETURN_IF_ERROR(watch_.Check());
  const absl::Status status = write();
  if (status.ok() || !IsOfDisk(status)) return status;
  RETURN_IF_ERROR(watch_.Check());
  metrics_->RecordWriteFailure();
  return on_write_error_ == OnWriteError::kFail ? status
                                                : Retry(what, write, status);
}

absl::Status FullDiskRule::Retry(const std::string& what,
                                 const std::function<absl::Status()>& write,
                                 const absl::Status& first) {
  const auto show = [&](const std::string& text) {
    status_->Change(
        [&](v1::GetStatusResponse& state) { ShowDiskWait(text, &state); });
  };
  const DiskWait wait(run_folder_);
  metrics_->SetPausedForDisk(true);
  absl::Status status = first;
  absl::Duration unsaid = kReminder;  // of pause since the last reminder
  for (absl::Duration pause = kFirstPause; !status.ok();
       pause = std::min(2 * pause, kLongestPause)) {
    const std::string text =
        absl::StrCat(what,
                     " could not be written; training pauses until it can "
                     "(checkpoint.on_write_error: pause): ",
                     std::string(status.message()));
    show(text);
    if (unsaid >= kReminder) {
      LogError(text);
      unsaid = absl::ZeroDuration();
    }
    unsaid += pause;
    if (wait_for_stop_(pause)) {
      return absl::CancelledError(absl::StrCat("stopped while ",
                                               what,
                                               " could not be written: ",
                                               std::string(status.message())));
    }
    status = watch_.Check();
    if (!status.ok()) break;
    status = write();
    if (!status.ok() && !IsOfDisk(status)) break;
    if (!status.ok()) metrics_->RecordWriteFailure();
  }
  show("");
  metrics_->SetPausedForDisk(false);
  if (!status.ok()) return status;
  LogInfo(absl::StrCat(what, " has been written; training continues"));
  return absl::OkStatus();
}

}  // namespace dapd
