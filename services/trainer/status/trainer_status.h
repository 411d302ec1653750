// TrainerStatus: the state of a run. The training thread changes it; the status
// RPC, which `dapd status` calls, and the status page read it through
// status_message.h. Thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/pool/worker_pool_options.h"
#include "common/training/trainer_phase.h"
#include "dapd/v1/trainer.pb.h"

namespace dapd {

class TrainerStatus {
 public:
  using Clock = std::chrono::steady_clock;
  using Workers = std::function<std::vector<WorkerState>()>;
  struct WorkersByRole {
    std::vector<WorkerState> rollout;
    std::vector<WorkerState> teacher;
  };

  TrainerStatus() { state_.set_phase(NameOf(TrainerPhase::kStarting)); }

  // Returns the state without its workers; elapsed_seconds and eta_seconds are
  // current.
  v1::GetStatusResponse Get() const {
    MutexLock lock(&mutex_);
    v1::GetStatusResponse state = state_;
    const auto seconds_since = [](Clock::time_point time) {
      return std::chrono::duration<double>(Clock::now() - time).count();
    };
    state.set_elapsed_seconds(seconds_since(start_));
    // The later steps remain even if this step takes longer than usual.
    const double of_this_step =
        std::min(seconds_since(last_step_), state.seconds_per_step());
    state.set_eta_seconds(std::max(0.0, state.eta_seconds() - of_this_step));
    return state;
  }
  // Runs `change` with the lock held; it must be quick.
  void Change(const std::function<void(v1::GetStatusResponse& state)>& change) {
    MutexLock lock(&mutex_);
    const int64_t step = state_.step();
    change(state_);
    if (state_.step() != step) last_step_ = Clock::now();
  }

  // Sets the functions that return each role's workers. They are called from
  // any thread until the next SetWorkers; {}: there are no workers.
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
  v1::GetStatusResponse state_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point last_step_ ABSL_GUARDED_BY(mutex_) = Clock::now();
  mutable Mutex workers_mutex_;
  Workers rollout_workers_ ABSL_GUARDED_BY(workers_mutex_);
  Workers teacher_workers_ ABSL_GUARDED_BY(workers_mutex_);
};

}  // namespace dapd
