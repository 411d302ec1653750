// AttemptEnd: the end of an attempt at a run whose trainers are child processes
// of this one (`dapd run`, trainer.ranks_per_machine). The end of one trainer
// need not be the run's: it may stop only because another failed. So the
// trainers tell nobody; this process corrects outcome.json and sends the run's
// notice once they are gone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/config/config.h"
#include "services/trainer/record/end_notice.h"

namespace dapd {

// Not thread-safe.
class AttemptEnd {
 public:
  // Begins the attempt. The end of a finished run is not told again, unless the
  // process that finished it had not told it (TellIfUntold). `gives_up` and
  // errors are as in EndNotice::Create.
  static absl::StatusOr<AttemptEnd> Create(const Config& config,
                                           std::function<bool()> gives_up);

  // Returns the overrides, "key=value", with which the trainers must be
  // started.
  static std::vector<std::string> TrainerOverrides();

  // Tells of the end of a run whose trainer stays when it is done
  // (trainer.when_done: serve). Call it while the trainers run.
  void TellIfDone();

  // Returns the reason that rank 0 recorded for ending this attempt with
  // `code`; empty if it recorded none.
  std::string TrainersWord(int code) const;

  // Tells that the trainers are gone and that the attempt ended with `status`,
  // which holds everything that is known of the cause.
  void Tell(const absl::Status& status);

 private:
  AttemptEnd(const Config& config, bool looks_for_end, EndNotice notice);

  std::string folder_;
  int64_t steps_;
  bool looks_for_end_;  // the trainer stays, and its end is untold
  EndNotice notice_;
  absl::Time start_;
};

}  // namespace dapd
