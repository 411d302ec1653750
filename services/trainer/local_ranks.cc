#include "services/trainer/local_ranks.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/child_process.h"
#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/thread_share.h"
#include "common/base/visible_gpus.h"
#include "common/config/validate_config.h"
#include "common/rpc/pool/address_resolver.h"
#include "common/rpc/server/shutdown_signal.h"

namespace dapd {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
// For the others to say why they end.
constexpr absl::Duration kGrace = absl::Seconds(8);
constexpr int kPortStride = 10;
// ChildProcess::Poll: 128 + the signal that ended it.
constexpr int kSignalBase = 128;

using Ranks = std::vector<std::unique_ptr<ChildProcess>>;

// The cores are shared, and each rank computes with as many threads as the
// others.
int64_t ThreadsOfRank(int64_t count) {
  int64_t threads = 0;
  const char* limit = std::getenv("OMP_NUM_THREADS");
  if (limit != nullptr && absl::SimpleAtoi(limit, &threads) && threads > 0) {
    return std::max<int64_t>(1, threads / count);
  }
  return ThreadsOfEach(count);
}

// The address of local rank `index`; an empty one and one whose port the system
// chooses stay.
std::string AddressOf(const std::string& configured, int64_t index) {
  std::string host;
  int port = 0;
  if (!SplitAddress(configured, &host, &port) || port == 0) return configured;
  return JoinHostPort(host, port + kPortStride * static_cast<int>(index));
}

absl::StatusOr<std::vector<std::string>> GpusFor(const Config& config,
                                                 int64_t count) {
  if (config.model.device == "cpu") return std::vector<std::string>();
  std::vector<std::string> gpus = VisibleGpus();
  const bool on_gpus = config.model.device == "cuda" || !gpus.empty();
  if (on_gpus && static_cast<int64_t>(gpus.size()) < count) {
    return ConfigError(absl::StrCat("--local-ranks is ",
                                    count,
                                    ", and this container sees ",
                                    gpus.size(),
                                    " GPUs; each rank needs its own"));
  }
  return gpus;
}

absl::StatusOr<Ranks> StartRanks(const Config& config,
                                 const ServiceFlags& flags,
                                 int64_t count) {
  ASSIGN_OR_RETURN(const std::vector<std::string> gpus, GpusFor(config, count));
  std::error_code error;
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  const int64_t first = config.trainer.rank * count;
  Ranks ranks;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<std::string> settings = flags.Overrides();
    settings.push_back(absl::StrCat("trainer.rank=", first + i));
    settings.push_back(
        absl::StrCat("trainer.listen=", AddressOf(config.trainer.listen, i)));
    settings.push_back(
        absl::StrCat("metrics.trainer_listen=",
                     AddressOf(config.metrics.trainer_listen, i)));
    if (config.run.num_threads == 0) {
      settings.push_back(
          absl::StrCat("run.num_threads=", ThreadsOfRank(count)));
    }
    std::vector<std::string> command = {program, flags.config};
    for (std::string& setting : settings) {
      command.push_back("--set");
      command.push_back(std::move(setting));
    }
    std::vector<std::string> environment;
    if (!gpus.empty()) {
      environment.push_back(GpuSetting({gpus[static_cast<size_t>(i)]}));
    }
    ranks.push_back(
        std::make_unique<ChildProcess>(absl::StrCat("rank ", first + i),
                                       std::move(command),
                                       /*log_path=*/"",
                                       std::move(environment)));
    RETURN_IF_ERROR(ranks.back()->Start());
  }
  return ranks;
}

absl::Status Ended(const ChildProcess& rank, int code) {
  const bool was_killed =
      code > kSignalBase && code != static_cast<int>(ExitCode::kInterrupted);
  return WithExitCode(
      absl::InternalError(absl::StrCat(
          "trainer ", rank.name(), " ended with code ", code, "; see above")),
      was_killed ? ExitCode::kRestart : static_cast<ExitCode>(code));
}

}  // namespace

absl::Status RunLocalRanks(const Config& config,
                           const ServiceFlags& flags,
                           int64_t count) {
  const TrainerSection& trainer = config.trainer;
  if ((trainer.rank + 1) * count > trainer.ranks ||
      trainer.ranks % count != 0) {
    return ConfigError(absl::StrCat("trainer.ranks is ",
                                    trainer.ranks,
                                    ": not ",
                                    count,
                                    " ranks (--local-ranks) in each of some "
                                    "containers, of which trainer.rank ",
                                    trainer.rank,
                                    " is one"));
  }
  ShutdownSignal signal;
  ASSIGN_OR_RETURN(const Ranks ranks, StartRanks(config, flags, count));
  bool asked_to_stop = false;
  for (int64_t running = count; running > 0;) {
    for (const auto& rank : ranks) {
      const int code = rank->Poll();
      if (code < 0) continue;
      --running;
      if (code == 0) continue;
      for (const auto& other : ranks) other->Stop(kGrace);
      return Ended(*rank, code);
    }
    if (signal.requested() && !asked_to_stop) {
      for (const auto& rank : ranks) rank->Signal(SIGTERM);
      asked_to_stop = true;
    }
    absl::SleepFor(kPollInterval);
  }
  return absl::OkStatus();
}

}  // namespace dapd
