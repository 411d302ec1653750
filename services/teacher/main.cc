// dapd-teacher CONFIG [--set key=value]... [--listen ADDR] [--port-file FILE]
//
// A teacher worker: listens, reads the base model, waits for an adapter, and
// scores until SIGTERM or SIGINT. Exit code 0 after a signal.
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/command_line.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/metrics/metrics_registry.h"
#include "common/metrics/security_metrics.h"
#include "common/rpc/client/credentials.h"
#include "common/rpc/server/server.h"
#include "common/rpc/server/server_metrics.h"
#include "common/rpc/server/shutdown_signal.h"
#include "common/security/security.h"
#include "services/teacher/model_scorer.h"
#include "services/teacher/teacher_metrics.h"
#include "services/teacher/teacher_service.h"
#include "services/teacher/teacher_worker.h"

namespace dapd {
namespace {

// What queued requests get to end after a signal; a container's usual patience
// is 10 s.
constexpr absl::Duration kShutdownGrace = absl::Seconds(8);
// What the last answers get to reach their clients.
constexpr absl::Duration kDeliveryGrace = absl::Seconds(1);

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  std::string listen;
  std::string port_file;
};

absl::Status Run(const Flags& flags) {
  std::atomic<bool> serving = false;
  ShutdownSignal signal([&serving] {
    // Reading a model cannot be interrupted, and nothing is lost with it.
    if (!serving) ::_exit(static_cast<int>(ExitCode::kOk));
  });
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(flags.config, flags.overrides));
  const Config& config = loaded.config;

  ASSIGN_OR_RETURN(const std::shared_ptr<Security> security,
                   Security::Load(config.security, {Role::kTeacher}));
  MetricsRegistry metrics("teacher", config.run.name);
  AddSecurityMetrics(
      security, config.teacher.listen, config.metrics.teacher_listen, &metrics);
  RETURN_IF_ERROR(WithExitCode(metrics
                                   .Serve({config.metrics.teacher_listen,
                                           config.metrics.allowed_hosts,
                                           security})
                                   .status(),
                               ExitCode::kConfig));
  TeacherService service;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<RpcServer> server,
      RpcServer::Start(
          {.listen = config.teacher.listen,
           .credentials = std::make_shared<const RpcCredentials>(security),
           .observer = MakeRpcObserver(&metrics)},
          {{&service, v1::TeacherService::service_full_name()}}));
  if (!flags.port_file.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(flags.port_file,
                                        absl::StrCat(server->port(), "\n")));
  }
  LogInfo(absl::StrCat(
      "listening on ", server->address(), ", reading ", config.model.path));
  ASSIGN_OR_RETURN(LoadedScorer model, LoadModelScorer(config));
  TeacherWorker worker(std::move(model.scorer), MakeTeacherMetrics(metrics));
  service.Attach(&worker, model.description);
  serving = true;
  server->SetServing(true);
  LogInfo("ready for adapters");

  signal.Wait();
  server->SetServing(false);
  worker.Shutdown(kShutdownGrace);
  server->Shutdown(kDeliveryGrace);
  LogInfo("stopped");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  SetLogName("teacher");
  Flags flags;
  CommandLine line("A DAPD teacher worker: scores views with frozen weights.");
  line.AddOption("config", flags.config, "YAML configuration").Required();
  line.AddOption("--set", flags.overrides, "key=value, overrides the file")
      .TakeAll();
  line.AddOption("--listen", flags.listen, "host:port, as teacher.listen");
  line.AddOption("--port-file", flags.port_file, "receives the port taken");
  if (const auto code = line.Parse(argc, argv)) return *code;
  if (!flags.listen.empty()) {
    flags.overrides.push_back("teacher.listen=" + flags.listen);
  }
  const absl::Status status = Run(flags);
  if (!status.ok()) LogError(std::string(status.message()));
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) { return dapd::Main(argc, argv); }
