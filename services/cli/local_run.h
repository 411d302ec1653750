// LocalRun: the processes of a `dapd run`, with their settings, ports and GPUs.
// The RunSupervisor follows them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/child_process.h"
#include "common/base/loopback_ports.h"
#include "common/config/config.h"
#include "common/config/load_config.h"
#include "common/model/spec/gpu_shares.h"
#include "services/cli/run_supervisor.h"

namespace dapd {

class LocalRun {
 public:
  // `loaded`: the configuration of the file at `config_path` with `overrides`,
  // which the processes read again. Children belong to `supervisor`, which must
  // outlive this.
  LocalRun(std::string config_path,
           std::vector<std::string> overrides,
           LoadedConfig loaded,
           RunSupervisor& supervisor);

  // Waits until other processes have freed the memory of the GPUs
  // (AwaitGpuMemory) or a stop is requested, divides the GPUs among the roles,
  // starts the workers and hands over the trainers. Returns an error if the
  // run's folder holds a run that cannot be resumed, a program is missing, or
  // the GPUs cannot be used or have too little memory.
  absl::Status Start();

 private:
  absl::Status CheckTokens() const;
  // Checks model, adapter and machine as far as possible before a process is
  // started (start_checks.h).
  absl::Status CheckFiles() const;
  absl::Status CheckFolder() const;
  // Splits the GPUs among the roles (machine_split.h), logs the split, and sets
  // it in config_ and overrides_.
  absl::Status TakeGpus();
  // Notes the GPUs of each process, and how many processes share them.
  void Deal(const std::vector<LocalProcess>& processes);
  absl::StatusOr<std::unique_ptr<ChildProcess>> MakeChild(
      const std::string& binary,
      const std::string& name,
      const std::vector<std::string>& overrides,
      bool to_log,
      const std::vector<std::string>& arguments = {}) const;
  absl::Status AddWorkers(const std::string& role,
                          int64_t count,
                          const std::string& metrics_listen,
                          int64_t processes_each,
                          std::vector<std::string>* addresses);
  // Starts the worker `index` of its kind, and returns its address.
  // `metrics_listen`: the address of the first of them; empty: no endpoint.
  absl::StatusOr<std::string> AddWorker(
      const std::string& role,
      const std::string& name,
      int64_t index,
      const std::string& metrics_listen,
      int64_t threads,
      const std::vector<std::string>& arguments);
  // Starts the workers of the further teachers that the terms read. The trainer
  // gets the settings in `overrides`, with their addresses.
  absl::Status AddFurtherTeachers(std::vector<std::string>* overrides);
  absl::Status AddTrainers(const std::vector<std::string>& overrides);
  // Returns a free address on loopback, for services that only this run's
  // processes ask.
  absl::StatusOr<std::string> TakeAddress();
  // Returns the host of `configured`, and its port plus `offset` if that is
  // free.
  absl::StatusOr<std::string> TakeListen(const std::string& configured,
                                         int offset);
  // Returns the settings of one trainer; `status_address` gets rank 0's.
  absl::StatusOr<std::vector<std::string>> RankOverrides(
      int64_t rank, const std::string& rendezvous, std::string* status_address);

  // The GPUs of one process.
  struct GpuPlace {
    std::vector<std::string> gpus;
    int64_t sharing = 0;  // processes on the fullest of them
  };

  const std::string config_path_;
  std::vector<std::string> overrides_;
  const LoadedConfig loaded_;
  Config config_;
  const std::string folder_;
  RunSupervisor& supervisor_;
  LoopbackPorts ports_;
  std::map<std::string, GpuPlace> places_;  // by the name of the process
};

}  // namespace dapd
