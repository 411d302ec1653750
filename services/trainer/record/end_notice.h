// EndNotice: tells the run's webhook (run.notify_url) how the run ended, by one
// JSON document:
//   {"run", "state": "finished" | "failed" | "stopped", "exit_code", "message",
//    "step", "steps", "adapter_digest", "evaluation": {"before", "after"},
//    "seconds", "host", "folder", "time", "version"}
// Step, digest and evaluations (as in summary.json, or null) come from the run
// folder; `seconds` is the duration of this attempt; `time` is RFC 3339, UTC,
// and equal in all copies of the document.
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
  // Reads the files that the section `run` names; returns the errors of
  // LoadWebhook. `gives_up` returns true once the process may no longer wait.
  static absl::StatusOr<EndNotice> Create(const RunConfig& run,
                                          std::function<bool()> gives_up);

  // Tells of the end if a webhook is configured; blocks for at most
  // run.notify_timeout_seconds. A failure is only logged. Further calls do
  // nothing. After an attempt that failed or was stopped, the run's folder must
  // be free: if it is held, another process goes on with the run, and nothing
  // is told.
  void Tell(const absl::Status& outcome);

 private:
  EndNotice(const RunConfig& run,
            std::optional<Webhook> webhook,
            std::function<bool()> gives_up);

  RunConfig run_;
  std::optional<Webhook> webhook_;
  std::function<bool()> gives_up_;
  absl::Time start_;  // as in recorded outcomes
  absl::Time steady_start_;
};

// Called by a process that finds a finished run. Records the end, and tells of
// it if the process that finished the run was killed or stopped before it told.
// Does nothing if another attempt has begun to take the run to more steps,
// because its end is told later. Returns the errors of EndNotice::Create.
absl::Status TellIfUntold(const RunConfig& run, std::function<bool()> gives_up);

// Returns the document.
std::string EndDocument(const RunConfig& run,
                        const RunOutcome& outcome,
                        double seconds);

}  // namespace dapd
