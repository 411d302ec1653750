#include "services/trainer/status/run_window.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/gpus/gpu_labels.h"
#include "common/metrics/security_metrics.h"
#include "common/rpc/server/server_metrics.h"
#include "services/trainer/record/finished_run.h"
#include "services/trainer/status/page/status_pages.h"

namespace dapd {

RunWindow::RunWindow(const Config& config,
                     const std::shared_ptr<Security>& security,
                     std::shared_ptr<const RpcCredentials> credentials)
    : config_(config),
      security_(security),
      credentials_(std::move(credentials)),
      registry_("trainer", config.run.name, GpuLabels(config.model.device)),
      metrics_(registry_, config),
      service_(&status_) {
  AddSecurityMetrics(security,
                     config.trainer.listen,
                     config.metrics.trainer_listen,
                     &registry_);
  if (config.trainer.rank == 0) return;
  status_.Change([&](v1::GetStatusResponse& state) {
    state.set_run_name(config.run.name);
    state.set_phase(absl::StrCat("rank ", config.trainer.rank, ", see rank 0"));
  });
}

absl::Status RunWindow::ServeHttp() {
  return WithExitCode(registry_
                          .Serve({config_.metrics.trainer_listen,
                                  config_.metrics.allowed_hosts,
                                  security_},
                                 StatusPages(&status_, &history_, &answers_))
                          .status(),
                      ExitCode::kConfig);
}

absl::StatusOr<std::unique_ptr<RpcServer>> RunWindow::ServeRpc() {
  return RpcServer::Start(
      {.listen = config_.trainer.listen,
       .credentials = credentials_,
       .observer = MakeRpcObserver(&registry_)},
      {{&service_, v1::TrainerService::service_full_name()}});
}

absl::Status RunWindow::ShowFinishedRun(const std::string& folder) {
  return dapd::ShowFinishedRun(config_, folder, displays());
}

}  // namespace dapd
