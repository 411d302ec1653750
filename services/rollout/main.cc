// dapd-rollout CONFIG [--set key=value]... [--listen ADDR] [--port-file FILE]
//
// A rollout worker: listens, reads the base model, waits for an adapter, and
// samples until SIGTERM or SIGINT. Exit code 0 after a signal. With
// rollout.tensor_parallel it starts further processes that compute the model
// with it (--tensor-rank, --rendezvous: their place, nothing to set by hand).
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
#include "common/base/thread_share.h"
#include "common/config/load_config.h"
#include "common/metrics/metrics_registry.h"
#include "common/metrics/security_metrics.h"
#include "common/rpc/client/credentials.h"
#include "common/rpc/server/server.h"
#include "common/rpc/server/server_metrics.h"
#include "common/rpc/server/shutdown_signal.h"
#include "common/security/security.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine_sampler.h"
#include "services/rollout/rollout_metrics.h"
#include "services/rollout/rollout_service.h"
#include "services/rollout/rollout_worker.h"
#include "services/rollout/tensor_ranks.h"

namespace dapd {
namespace {

// What running samples get to end after a signal; a container's usual patience
// is 10 s.
constexpr absl::Duration kShutdownGrace = absl::Seconds(8);
// What the last answers get to reach their clients.
constexpr absl::Duration kDeliveryGrace = absl::Seconds(1);

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  std::string listen;
  std::string port_file;
  TensorRank tensor_rank;                  // 0: the worker itself
  std::vector<std::string> as_was_called;  // the arguments
};

// Ranks of one worker compute with as many threads as each other, and share the
// cores.
Config ForTensorRanks(Config config) {
  if (config.run.num_threads == 0) {
    config.run.num_threads = ThreadsOfEach(config.rollout.tensor_parallel);
  }
  return config;
}

// One of the processes that a worker started.
absl::Status RunTensorRank(const Flags& flags) {
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(flags.config, flags.overrides));
  const Config config = ForTensorRanks(loaded.config);
  ASSIGN_OR_RETURN(const std::unique_ptr<Collective> ranks,
                   JoinTensorRanks(config, flags.tensor_rank));
  ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer,
                   Tokenizer::Load(config.model.path));
  return ServeSharedSampler(config, tokenizer->size(), *ranks);
}

absl::StatusOr<LoadedSampler> LoadSampler(const Config& config,
                                          int64_t num_tokens,
                                          TensorRanks* ranks) {
  if (ranks == nullptr) return LoadEngineSampler(config, num_tokens);
  return LoadSharedSampler(ForTensorRanks(config),
                           num_tokens,
                           ranks->collective(),
                           TensorRanks::EndWithRanks);
}

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
                   Security::Load(config.security, {Role::kRollout}));
  MetricsRegistry metrics("rollout", config.run.name);
  AddSecurityMetrics(
      security, config.rollout.listen, config.metrics.rollout_listen, &metrics);
  RETURN_IF_ERROR(WithExitCode(metrics
                                   .Serve({config.metrics.rollout_listen,
                                           config.metrics.allowed_hosts,
                                           security})
                                   .status(),
                               ExitCode::kConfig));
  RolloutService service;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<RpcServer> server,
      RpcServer::Start(
          {.listen = config.rollout.listen,
           .credentials = std::make_shared<const RpcCredentials>(security),
           .observer = MakeRpcObserver(&metrics)},
          {{&service, v1::RolloutService::service_full_name()}}));
  if (!flags.port_file.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(flags.port_file,
                                        absl::StrCat(server->port(), "\n")));
  }
  LogInfo(absl::StrCat(
      "listening on ", server->address(), ", reading ", config.model.path));
  ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer,
                   Tokenizer::Load(config.model.path));
  std::unique_ptr<TensorRanks> ranks;
  if (config.rollout.tensor_parallel > 1) {
    ASSIGN_OR_RETURN(ranks, TensorRanks::Start(config, flags.as_was_called));
  }
  ASSIGN_OR_RETURN(LoadedSampler model,
                   LoadSampler(config, tokenizer->size(), ranks.get()));
  RolloutWorker worker(
      std::move(model.sampler),
      {.observer = MakeRolloutMetrics(metrics, config.rollout.slots)});
  service.Attach(&worker, model.description);
  serving = true;
  server->SetServing(true);
  LogInfo("ready for an adapter");

  signal.Wait();
  if (ranks != nullptr) ranks->StopWatching();
  server->SetServing(false);
  worker.Shutdown(kShutdownGrace);
  server->Shutdown(kDeliveryGrace);
  LogInfo("stopped");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  SetLogName("rollout");
  Flags flags;
  CommandLine line(
      "A DAPD rollout worker: samples answers from the live policy.");
  line.AddOption("config", flags.config, "YAML configuration").Required();
  line.AddOption("--set", flags.overrides, "key=value, overrides the file")
      .TakeAll();
  line.AddOption("--listen", flags.listen, "host:port, as rollout.listen");
  line.AddOption("--port-file", flags.port_file, "receives the port taken");
  line.AddOption("--tensor-rank", flags.tensor_rank.rank).Hide();
  line.AddOption("--rendezvous", flags.tensor_rank.rendezvous).Hide();
  flags.as_was_called.assign(argv + 1, argv + argc);
  if (const auto code = line.Parse(argc, argv)) return *code;
  if (!flags.listen.empty()) {
    flags.overrides.push_back("rollout.listen=" + flags.listen);
  }
  const absl::Status status =
      flags.tensor_rank.rank > 0 ? RunTensorRank(flags) : Run(flags);
  if (!status.ok()) LogError(std::string(status.message()));
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) { return dapd::Main(argc, argv); }
