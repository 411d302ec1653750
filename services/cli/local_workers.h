// LocalWorkers: rollout workers that a command starts for itself on the GPUs of
// its machine, and that end with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/child_process.h"
#include "common/base/loopback_ports.h"

namespace dapd {

// What all of them serve and with what, by the keys of a configuration.
struct LocalWorkersOptions {
  std::string model_path;  // a folder
  std::string precision;   // float32 | bfloat16
  int64_t slots = 32;
  int64_t max_new_tokens = 1;
  int64_t lora_rank = 1;  // of the largest adapter that they are sent
};

// Not thread-safe.
class LocalWorkers {
 public:
  // Takes an address for each of the workers; none is started yet. `gpus`: what
  // CUDA_VISIBLE_DEVICES calls the GPUs of each; one with several splits the
  // model over them (rollout.tensor_parallel).
  static absl::StatusOr<std::unique_ptr<LocalWorkers>> Make(
      std::vector<std::vector<std::string>> gpus);
  ~LocalWorkers();
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;

  // host:port of each.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Starts dapd-rollout, which lies beside this program, once for each. What
  // they say is kept for an error. To be called once.
  absl::Status Start(const LocalWorkersOptions& options);

  // To be called every second or so: starts a worker that has ended again. An
  // error with the last lines of one that would only end again.
  absl::Status KeepAlive();

 private:
  class Tail;
  struct Worker {
    std::unique_ptr<ChildProcess> process;
    std::shared_ptr<Tail> tail;  // of what it has said
    int restarts = 0;
  };

  explicit LocalWorkers(std::vector<std::vector<std::string>> gpus);
  // Of the worker with those GPUs.
  std::vector<std::string> Settings(const LocalWorkersOptions& options,
                                    size_t index) const;

  const std::vector<std::vector<std::string>> gpus_;
  LoopbackPorts ports_;
  std::vector<std::string> addresses_;
  int config_ = -1;  // the descriptor of their configuration file
  std::vector<Worker> workers_;
};

}  // namespace dapd
