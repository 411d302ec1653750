// dapd-rollout CONFIG [--set key=value]... [--listen ADDR] [--port-file FILE]
//
// A rollout worker: listens, reads the base model, waits for an adapter, and
// samples until SIGTERM or SIGINT. Exit code 0 after a signal, or 130 with
// run.stopped_worker. With rollout.tensor_parallel it starts further processes
// that compute the model with it. It passes them --tensor-rank and
// --rendezvous, which users never set.
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/command_line.h"
#include "common/base/crash_report.h"
#include "common/base/cuda_environment.h"
#include "common/base/end_for_restart.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/this_program.h"
#include "common/base/thread_share.h"
#include "common/config/load_config.h"
#include "common/config/set_up_log.h"
#include "common/hub/model_folder.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/server/worker_program.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine_sampler.h"
#include "services/rollout/rollout_metrics.h"
#include "services/rollout/rollout_service.h"
#include "services/rollout/rollout_worker.h"
#include "services/rollout/tensor_ranks.h"

namespace dapd {
namespace {

struct Flags {
  WorkerFlags worker;
  TensorRank tensor_rank;                  // 0: the worker itself
  std::vector<std::string> as_was_called;  // the arguments
};

// The ranks of a worker use equal numbers of threads and share the cores.
Config ForTensorRanks(Config config) {
  if (config.run.num_threads == 0) {
    config.run.num_threads = ThreadsOfEach(config.rollout.tensor_parallel);
  }
  return config;
}

// Runs a process that a worker started.
absl::Status RunTensorRank(const Flags& flags) {
  HeedRankZeroAlone();
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(flags.worker.config, flags.worker.Overrides()));
  Config config = ForTensorRanks(loaded.config);
  ASSIGN_OR_RETURN(config.model.path, FindModelFolder(config.model.path));
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
  RolloutService service;  // must outlive the program's server
  WorkerProgram program("rollout", Role::kRollout);
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(flags.worker.config, flags.worker.Overrides()));
  Config config = loaded.config;
  ASSIGN_OR_RETURN(config.model.path, FindModelFolder(config.model.path));
  RETURN_IF_ERROR(
      program.Start(config,
                    {.grpc = config.rollout.listen,
                     .metrics = config.metrics.rollout_listen,
                     .port_file = flags.worker.port_file},
                    {&service, v1::RolloutService::service_full_name()}));
  ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer,
                   Tokenizer::Load(config.model.path));
  std::unique_ptr<TensorRanks> ranks;
  if (config.rollout.tensor_parallel > 1) {
    ASSIGN_OR_RETURN(ranks, TensorRanks::Start(config, flags.as_was_called));
  }
  ASSIGN_OR_RETURN(LoadedSampler model,
                   LoadSampler(config, tokenizer->size(), ranks.get()));
  RolloutWorker worker(std::move(model.sampler),
                       {.observer = MakeRolloutMetrics(
                            program.metrics(), model.description.max_in_flight),
                        .on_broken = EndForRestart});
  service.Attach(&worker, model.description);
  return program.ServeUntilSignal([&](absl::Duration grace) {
    if (ranks != nullptr) ranks->StopWatching();
    worker.Shutdown(grace);
  });
}

int Main(int argc, char** argv) {
  OpenStandardStreams();
  NameThisProcess();
  ReportCrashes();
  Flags flags;
  CommandLine line(
      "A DAPD rollout worker: samples answers from the live policy.");
  flags.worker.AddTo(line, "rollout.listen");
  line.AddOption("--tensor-rank", flags.tensor_rank.rank).Hide();
  line.AddOption("--rendezvous", flags.tensor_rank.rendezvous).Hide();
  flags.as_was_called.assign(argv + 1, argv + argc);
  if (const auto code = line.Parse(argc, argv)) return *code;
  const Config config =
      PeekConfig(flags.worker.config, flags.worker.Overrides());
  SetCudaEnvironment(config.model.deterministic);
  const bool is_one_of_several = config.rollout.tensor_parallel > 1;
  SetUpLog("rollout", config, is_one_of_several ? flags.tensor_rank.rank : -1);
  LogWhatGrpcSays();
  const absl::Status status =
      flags.tensor_rank.rank > 0 ? RunTensorRank(flags) : Run(flags);
  if (!status.ok()) LogError(std::string(status.message()));
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) { return dapd::Main(argc, argv); }
