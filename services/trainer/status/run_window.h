// RunWindow: the servers of a trainer's process that show its run.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/charts/run_history.h"
#include "common/config/config.h"
#include "common/metrics/metrics_registry.h"
#include "common/rpc/rpc_credentials.h"
#include "common/rpc/server/server.h"
#include "common/security/security.h"
#include "services/trainer/record/run_answers.h"
#include "services/trainer/record/run_displays.h"
#include "services/trainer/status/trainer_metrics.h"
#include "services/trainer/status/trainer_service.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {

// Serves status, history and metrics by HTTP and gRPC. `config` must outlive
// it.
class RunWindow {
 public:
  RunWindow(const Config& config,
            const std::shared_ptr<Security>& security,
            std::shared_ptr<const RpcCredentials> credentials);

  absl::Status ServeHttp();
  absl::StatusOr<std::unique_ptr<RpcServer>> ServeRpc();
  // Shows a run that an earlier process finished.
  absl::Status ShowFinishedRun(const std::string& folder);

  TrainerStatus& status() { return status_; }
  TrainerMetrics& metrics() { return metrics_; }
  RunDisplays displays() { return {&metrics_, &status_, &history_, &answers_}; }

 private:
  const Config& config_;
  const std::shared_ptr<Security> security_;
  const std::shared_ptr<const RpcCredentials> credentials_;
  TrainerStatus status_;
  RunHistory history_;
  RunAnswers answers_;
  MetricsRegistry registry_;  // serves the members above
  TrainerMetrics metrics_;
  TrainerService service_;
};

}  // namespace dapd
