// A command's client of rollout workers; this header needs no gRPC.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/command_line.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

struct WorkerOptions {
  std::string addresses;                // "host:port,..."; empty: none
  double answer_timeout_seconds = 0.0;  // 0: by AnswerTimeout
  double peer_timeout_seconds = 300.0;
  std::vector<std::string> security;  // --set security.<key>=value

  // Adds --workers, --answer-timeout, --peer-timeout and --set.
  void AddFlags(Command& command);
};

// Starts to look for the workers as a trainer does (worker_client.h), with a
// trainer's certificate and token, since only trainers may make these calls.
// Fails with exit code kConfig for a malformed address or unusable credentials.
absl::StatusOr<std::unique_ptr<RolloutClient>> OpenRolloutClient(
    const WorkerOptions& options,
    const ExpectedWorker& expected,
    int64_t max_new_tokens);

}  // namespace dapd
