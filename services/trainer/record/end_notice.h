// EndNotice: tells the run's webhook (run.notify_url) how the run ended, by one
// JSON document:
//   {"run", "state": "finished" | "failed" | "stopped", "exit_code", "message",
//    "step", "steps", "adapter_digest", "evaluation": {"before", "after"},
//    "seconds", "host", "folder", "time", "version"}
// Step, digest and evaluations (as in summary.json, or null) are what the run
// folder holds; `seconds` is how long this attempt took, `time` is RFC 3339,
// UTC, the same for each time that the document is sent.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/config/config.h"
#include "common/notify/webhook.h"
#include "services/trainer/record/run_outcome.h"

namespace dapd {

// Not thread-safe.
class EndNotice {
 public:
  // Reads the files that the section `run` names; errors as LoadWebhook.
  // `gives_up`: whoever ends the process does not wait any longer.
  static absl::StatusOr<EndNotice> Create(const RunConfig& run,
                                          std::function<bool()> gives_up);

  // Blocks for at most run.notify_timeout_seconds. What goes wrong is logged:
  // the run is worth as much without. Only the first call tells anything, and
  // none if nobody is to be told. An attempt that failed or was stopped must
  // have let go of the run's folder: if that is held, another process goes on
  // with the run, and nothing is told.
  void Tell(const absl::Status& outcome);

 private:
  EndNotice(const RunConfig& run,
            std::optional<Webhook> webhook,
            std::function<bool()> gives_up);

  RunConfig run_;
  std::optional<Webhook> webhook_;
  std::function<bool()> gives_up_;
  absl::Time start_;  // as recorded outcomes tell the time
  absl::Time steady_start_;
};

// For whoever finds a run that has finished: records that, and tells of it if
// whoever finished it was killed, or told to stop, before it had. Neither for a
// run that another attempt has begun to take to more steps: how that one ends
// is told. Errors as EndNotice::Create.
absl::Status TellIfUntold(const RunConfig& run, std::function<bool()> gives_up);

// The document.
std::string EndDocument(const RunConfig& run,
                        const RunOutcome& outcome,
                        double seconds);

}  // namespace dapd
