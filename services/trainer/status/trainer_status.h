// TrainerStatus: where a run stands, for whoever asks. The training thread
// changes it; the status RPC, and with it `dapd status`, and the status page
// read it, all through status_message.h. Thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/pool/worker_pool_options.h"
#include "services/trainer/record/evaluation_report.h"

namespace dapd {

// As in proto/dapd/v1/trainer.proto, without the workers.
struct TrainerState {
  std::string run_name;
  std::string run_folder;
  std::string phase = "starting";
  int64_t phase_done = 0;  // of phase_total; 0 of 0: the phase is not counted
  int64_t phase_total = 0;
  int64_t trained_ahead = 0;  // micro-batches, in the phase "rollout"
  int64_t step = 0;           // optimizer steps taken
  int64_t start_step = 0;     // those that an earlier attempt took
  int64_t total_steps = 0;
  std::string adapter_digest;
  int64_t snapshot_step = 0;
  double elapsed_seconds = 0.0;  // of this process; filled in by Get
  double seconds_per_step = 0.0;
  double eta_seconds = 0.0;  // to the last step
  // Of the last step:
  double loss = 0.0;
  double gradient_norm = 0.0;
  double learning_rate = 0.0;
  double mean_rollout_tokens = 0.0;
  double generated_tokens_per_second = 0.0;
  double scored_tokens_per_second = 0.0;
  double samples_per_second = 0.0;
  struct Term {
    std::string name;
    double value = 0.0;
    double weight = 0.0;
    double clipped_fraction = 0.0;
  };
  std::vector<Term> terms;
  // What gradient norm and rollout length are limited to.
  double max_gradient_norm = 0.0;
  int64_t max_rollout_tokens = 0;
  struct Evaluation {
    std::string when;  // "before" or "after" training
    EvaluationReport report;
  };
  std::vector<Evaluation> evaluations;
};

class TrainerStatus {
 public:
  using Clock = std::chrono::steady_clock;
  using Workers = std::function<std::vector<WorkerState>()>;
  struct WorkersByRole {
    std::vector<WorkerState> rollout;
    std::vector<WorkerState> teacher;
  };

  // The state; elapsed_seconds and eta_seconds are as of now.
  TrainerState Get() const {
    MutexLock lock(&mutex_);
    TrainerState state = state_;
    const auto seconds_since = [](Clock::time_point time) {
      return std::chrono::duration<double>(Clock::now() - time).count();
    };
    state.elapsed_seconds = seconds_since(start_);
    state.eta_seconds =
        std::max(0.0, state.eta_seconds - seconds_since(last_step_));
    return state;
  }
  // Runs `change` with the lock held: it must be quick.
  void Change(const std::function<void(TrainerState& state)>& change) {
    MutexLock lock(&mutex_);
    const int64_t step = state_.step;
    change(state_);
    if (state_.step != step) last_step_ = Clock::now();
  }

  // Where to ask for the workers of each role, from any thread, until the next
  // call; {} for nowhere.
  void SetWorkers(Workers rollout, Workers teacher) {
    MutexLock lock(&workers_mutex_);
    rollout_workers_ = std::move(rollout);
    teacher_workers_ = std::move(teacher);
  }
  WorkersByRole GetWorkers() const {
    MutexLock lock(&workers_mutex_);
    WorkersByRole workers;
    if (rollout_workers_) workers.rollout = rollout_workers_();
    if (teacher_workers_) workers.teacher = teacher_workers_();
    return workers;
  }

 private:
  const Clock::time_point start_ = Clock::now();
  mutable Mutex mutex_;
  TrainerState state_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point last_step_ ABSL_GUARDED_BY(mutex_) = Clock::now();
  mutable Mutex workers_mutex_;
  Workers rollout_workers_ ABSL_GUARDED_BY(workers_mutex_);
  Workers teacher_workers_ ABSL_GUARDED_BY(workers_mutex_);
};

}  // namespace dapd
