// The frame of both worker programs around their service: reading the command
// line, listening, metrics, health, readiness, and a good end on SIGTERM or
// SIGINT.
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

// Returns how many calls a worker takes at a time: the calls that anybody may
// make, and for every trainer rank its streams and one call that loads weights.
int MaxCalls(const Config& config);

// Make it before any other thread starts (ShutdownSignal). A signal before
// ServeUntilSignal ends the process at once: reading a model cannot be
// interrupted, and nothing is lost. The exit code is then 0, and from Start on
// the code of run.stopped_worker.
class WorkerProgram {
 public:
  // `name`: "rollout" or "teacher", for the metrics.
  WorkerProgram(std::string name, Role role);

  struct Listeners {
    std::string grpc;  // host:port
    std::string metrics;
    std::string port_file;     // receives the port that was taken; may be empty
    MetricLabels labels = {};  // of every metric, besides the run
  };
  // Listens for `service` (which must outlive this) and for scrapers. Fails
  // with exit code kConfig for an address that cannot be taken.
  absl::Status Start(const Config& config,
                     const Listeners& listeners,
                     const RpcService& service);

  // Must be called after Start.
  MetricsRegistry& metrics() { return *metrics_; }

  // Reports the worker as ready, waits for the signal, reports it as not ready,
  // gives running calls the time of `shutdown`, and closes the server. Returns
  // CANCELLED with run.stopped_worker: the run was interrupted.
  // `takes_adapters`: whether trainers load weights into it, for the log.
  absl::Status ServeUntilSignal(
      const std::function<void(absl::Duration grace)>& shutdown,
      bool takes_adapters = true);

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
