#include "common/rpc/server/worker_program.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/error_output.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/gpus/gpu_labels.h"
#include "common/metrics/security_metrics.h"
#include "common/rpc/rpc_credentials.h"
#include "common/rpc/server/server_metrics.h"
#include "common/security/security.h"

namespace dapd {
namespace {

// How long running work may take to end after a signal; containers usually wait
// for 10 s.
constexpr absl::Duration kShutdownGrace = absl::Seconds(8);
// How long the last answers may take to reach their clients.
constexpr absl::Duration kDeliveryGrace = absl::Seconds(1);

}  // namespace

int MaxCalls(const Config& config) {
  const int64_t of_rank = config.teacher.connections + 1;
  return RpcServerOptions().max_threads +
         static_cast<int>(config.trainer.ranks * of_rank);
}

void WorkerFlags::AddTo(CommandLine& line, const std::string& listen_key) {
  ServiceFlags::AddTo(line, listen_key);
  line.AddOption("--port-file", port_file, "file to write the chosen port to")
      .NotEmpty();
}

WorkerProgram::WorkerProgram(std::string name, Role role)
    : name_(std::move(name)), role_(role), signal_([this] {
        if (serving_) return;
        FlushErrorOutput();
        ::_exit(static_cast<int>(stopped_code_.load()));
      }) {}

absl::Status WorkerProgram::Start(const Config& config,
                                  const Listeners& listeners,
                                  const RpcService& service) {
  if (config.run.stopped_worker == StoppedWorker::kInterrupted) {
    stopped_code_ = ExitCode::kInterrupted;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<Security> security,
                   Security::Load(config.security, {role_}));
  metrics_ = std::make_unique<MetricsRegistry>(
      name_, config.run.name, GpuLabels(config.model.device), listeners.labels);
  AddSecurityMetrics(
      security, listeners.grpc, listeners.metrics, metrics_.get());
  RETURN_IF_ERROR(WithExitCode(
      metrics_
          ->Serve({listeners.metrics, config.metrics.allowed_hosts, security})
          .status(),
      ExitCode::kConfig));
  ASSIGN_OR_RETURN(
      server_,
      RpcServer::Start(
          {.listen = listeners.grpc,
           .credentials = std::make_shared<const RpcCredentials>(security),
           .observer = MakeRpcObserver(metrics_.get()),
           .max_threads = MaxCalls(config)},
          {service}));
  if (!listeners.port_file.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(listeners.port_file,
                                        absl::StrCat(server_->port(), "\n")));
  }
  LogInfo(absl::StrCat(
      "listening on ", server_->address(), ", reading ", config.model.path));
  return absl::OkStatus();
}

absl::Status WorkerProgram::ServeUntilSignal(
    const std::function<void(absl::Duration grace)>& shutdown,
    bool takes_adapters) {
  serving_ = true;
  server_->SetServing(true);
  LogInfo(takes_adapters ? "ready for an adapter" : "ready for requests");
  signal_.Wait();
  server_->SetServing(false);
  shutdown(kShutdownGrace);
  server_->Shutdown(kDeliveryGrace);
  LogInfo("stopped");
  if (stopped_code_ == ExitCode::kOk) return absl::OkStatus();
  return WithExitCode(absl::CancelledError("ended by a signal"), stopped_code_);
}

}  // namespace dapd
