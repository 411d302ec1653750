// AttemptEnd: the end of an attempt at a run whose trainers are processes that
// this one has started (`dapd run`, trainer.ranks_per_machine). A trainer's end
// need not be the run's: one may stop only because another failed. So the
// trainers tell nobody, and this process corrects outcome.json and sends the
// run's notice once they are gone.
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
  // The attempt begins now. Of a run that has finished nothing is told again,
  // but what whoever finished it had not told yet (TellIfUntold). `gives_up`
  // and errors: as EndNotice::Create.
  static absl::StatusOr<AttemptEnd> Create(const Config& config,
                                           std::function<bool()> gives_up);

  // "key=value": what the trainers are to be started with.
  static std::vector<std::string> TrainerOverrides();

  // To be called while the trainers run: tells of the end of a run whose
  // trainer stays when it is done (trainer.when_done: serve).
  void TellIfDone();

  // The reason that rank 0 has recorded for its end in this attempt, which it
  // ended with `code`; empty if it has recorded none.
  std::string TrainersWord(int code) const;

  // The trainers are gone, and the attempt has ended with `status`, which says
  // all that is known of why.
  void Tell(const absl::Status& status);

 private:
  AttemptEnd(const Config& config, bool looks_for_end, EndNotice notice);

  std::string folder_;
  int64_t steps_;
  bool looks_for_end_;  // the trainer stays, and somebody is still to be told
  EndNotice notice_;
  absl::Time start_;
};

}  // namespace dapd
