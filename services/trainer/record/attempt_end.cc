#include "services/trainer/record/attempt_end.h"

#include <utility>

#include "absl/time/clock.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/config/run_folder.h"
#include "services/trainer/record/folder_watch.h"
#include "services/trainer/record/run_outcome.h"

namespace dapd {

AttemptEnd::AttemptEnd(const Config& config,
                       bool looks_for_end,
                       EndNotice notice)
    : folder_(FolderOf(config.run)),
      steps_(config.trainer.steps),
      looks_for_end_(looks_for_end),
      notice_(std::move(notice)),
      start_(absl::Now()) {}

absl::StatusOr<AttemptEnd> AttemptEnd::Create(const Config& config,
                                              std::function<bool()> gives_up) {
  RunConfig told = config.run;
  if (HasFinished(FolderOf(told), config.trainer.steps)) {
    RETURN_IF_ERROR(TellIfUntold(told, gives_up));
    told.notify_url.clear();
  }
  ASSIGN_OR_RETURN(EndNotice notice,
                   EndNotice::Create(told, std::move(gives_up)));
  return AttemptEnd(
      config,
      /*looks_for_end=*/config.trainer.when_done == WhenDone::kServe &&
          !told.notify_url.empty(),
      std::move(notice));
}

std::vector<std::string> AttemptEnd::TrainerOverrides() {
  return {"run.notify_url=", "run.notify_secret_file=", "run.notify_ca_file="};
}

void AttemptEnd::TellIfDone() {
  if (!looks_for_end_ || !HasFinished(folder_, steps_)) return;
  looks_for_end_ = false;
  notice_.Tell(absl::OkStatus());
}

std::string AttemptEnd::TrainersWord(int code) const {
  if (code == static_cast<int>(ExitCode::kRunLost) && !FileExists(folder_)) {
    return std::string(FolderIsGone(folder_).message());
  }
  const auto recorded = ReadOutcomeSince(folder_, start_);
  return recorded.has_value() && recorded->exit_code == code ? recorded->message
                                                             : "";
}

void AttemptEnd::Tell(const absl::Status& status) {
  CorrectOutcome(folder_, status, start_);
  notice_.Tell(status);
}

}  // namespace dapd
