// TrainerStatus: where a run stands, for whoever asks. The training thread
// changes it, the status RPC and the CLI read it. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/mutex.h"

namespace dapd {

// As in proto/dapd/v1/trainer.proto, without the workers.
struct TrainerState {
  std::string run_name;
  std::string run_folder;
  std::string phase = "starting";
  int64_t step = 0;  // optimizer steps taken
  int64_t total_steps = 0;
  std::string adapter_digest;
  int64_t snapshot_step = 0;
  double seconds_per_step = 0.0;
  double eta_seconds = 0.0;
  double loss = 0.0;  // of the last step
  double gradient_norm = 0.0;
  double learning_rate = 0.0;
  double mean_rollout_tokens = 0.0;
  struct Term {
    std::string name;
    double value = 0.0;
    double weight = 0.0;
    double clipped_fraction = 0.0;
  };
  std::vector<Term> terms;
};

class TrainerStatus {
 public:
  TrainerState Get() const {
    MutexLock lock(&mutex_);
    return state_;
  }
  // Runs `change` with the lock held: it must be quick.
  void Change(const std::function<void(TrainerState& state)>& change) {
    MutexLock lock(&mutex_);
    change(state_);
  }

 private:
  mutable Mutex mutex_;
  TrainerState state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dapd
