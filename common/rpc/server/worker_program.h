// What the programs of both workers do around their service: they read the
// command line, listen, show metrics and health, say when they are ready, and
// end in good order on SIGTERM or SIGINT.
//
//   WorkerProgram program("rollout", Role::kRollout);  // takes the signals
//   program.Start(...);             // listens; health says NOT_SERVING
//   ...                             // reads the model, attaches it
//   program.ServeUntilSignal(...);  // health says SERVING
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/base/exit_code.h"
#include "common/config/config.h"
#include "common/config/service_flags.h"
#include "common/metrics/metrics_registry.h"
#include "common/rpc/server/server.h"
#include "common/rpc/server/shutdown_signal.h"
#include "common/security/role.h"

namespace dapd {

struct WorkerFlags : ServiceFlags {
  std::string port_file;

  void AddTo(CommandLine& line, const std::string& listen_key);
};

// How many calls a worker takes at a time: beside what anybody may ask, the
// streams of every trainer rank, and one call of each that loads weights.
int MaxCalls(const Config& config);

// Make one before any other thread starts (ShutdownSignal). A signal that comes
// before ServeUntilSignal ends the process at once: reading a model cannot be
// interrupted, and nothing is lost with it. Its exit code is then 0, and from
// Start on what run.stopped_worker wants.
class WorkerProgram {
 public:
  // `name`: "rollout" or "teacher", of the metrics.
  WorkerProgram(std::string name, Role role);

  struct Listeners {
    std::string grpc;  // host:port
    std::string metrics;
    std::string port_file;  // receives the port that was taken; may be empty
  };
  // Listens for `service` (which must outlive this) and for scrapers. Addresses
  // that cannot be taken have exit code kConfig.
  absl::Status Start(const Config& config,
                     const Listeners& listeners,
                     const RpcService& service);

  // After Start.
  MetricsRegistry& metrics() { return *metrics_; }

  // Says that the worker is ready, waits for the signal, says that it is not
  // any more, lets `shutdown` end what runs within the time it is given, and
  // closes the server. CANCELLED with run.stopped_worker: interrupted.
  absl::Status ServeUntilSignal(
      const std::function<void(absl::Duration grace)>& shutdown);

 private:
  const std::string name_;
  const Role role_;
  std::atomic<bool> serving_ = false;
  std::atomic<ExitCode> stopped_code_ = ExitCode::kOk;
  ShutdownSignal signal_;
  std::unique_ptr<MetricsRegistry> metrics_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace dapd
