// LocalWorkers: rollout workers that a command starts on the GPUs of its
// machine and that end with the command.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/child_process.h"
#include "common/base/loopback_ports.h"
#include "common/config/config.h"
#include "services/cli/restarts.h"

namespace dapd {

// The model and the settings of all workers, by the keys of a configuration.
struct LocalWorkersOptions {
  std::string model_path;  // a folder
  Precision precision = Precision::kFloat32;
  int64_t slots = 32;
  int64_t kv_memory_mib = 0;
  KvPrecision kv_precision = KvPrecision::kModel;
  int64_t max_new_tokens = 1;
  int64_t lora_rank = 1;  // of the largest adapter that they get
};

// Not thread-safe.
class LocalWorkers {
 public:
  // Takes an address for each of the workers, but starts none. `gpus`: the GPUs
  // of each worker, by their names in CUDA_VISIBLE_DEVICES; a worker with
  // several GPUs splits the model over them (rollout.tensor_parallel).
  static absl::StatusOr<std::unique_ptr<LocalWorkers>> Make(
      std::vector<std::vector<std::string>> gpus);
  ~LocalWorkers();
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;

  // Returns host:port of each worker.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Starts dapd-rollout, from the folder of this program, once for each worker.
  // Keeps the workers' last output for an error. Call it once.
  absl::Status Start(const LocalWorkersOptions& options);

  // Starts workers again that have ended, by the rules of restarts.h. An error
  // shows the last lines of a worker that would end again. Call it every second
  // or so.
  absl::Status KeepAlive();

 private:
  class Tail;
  struct Worker {
    std::unique_ptr<ChildProcess> process;
    std::shared_ptr<Tail> tail;  // of its output
    Restarts restarts{Restarts::Options{}};
    std::optional<absl::Time> next_start;  // set when it has ended
  };

  explicit LocalWorkers(std::vector<std::vector<std::string>> gpus);
  // Returns the path of a new file in memory, which ends with this process.
  absl::StatusOr<std::string> MakeFile(absl::string_view content);
  // Returns the settings of the worker with those GPUs.
  std::vector<std::string> Settings(const LocalWorkersOptions& options,
                                    size_t index) const;
  absl::Status StartWorker(const std::string& program,
                           const std::string& config,
                           const LocalWorkersOptions& options,
                           size_t index);
  static absl::Status KeepAlive(Worker& worker);

  const std::vector<std::vector<std::string>> gpus_;
  LoopbackPorts ports_;
  std::vector<std::string> addresses_;
  std::vector<int> files_;  // the descriptors of MakeFile
  std::vector<Worker> workers_;
};

}  // namespace dapd
