// TeacherClients: the clients of the student's own teachers and of further
// teachers (the configuration's `teachers`), as one TeacherClient. Each has a
// pool of workers of its own, and ScoreTask::teacher names the pool of a task.
// The ids of tasks must be unique over all pools.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "services/trainer/workers/worker_client.h"

namespace dapd {

// Rung when a client may have a result; clients and the waiting thread share
// it. Thread-safe.
class ResultBell {
 public:
  int64_t rings() const {
    MutexLock lock(&mutex_);
    return rings_;
  }
  void Ring() {
    MutexLock lock(&mutex_);
    ++rings_;
    rung_.NotifyAll();
  }
  // Waits until it has rung more often than `rings`, for at most `timeout`.
  void WaitFor(int64_t rings, absl::Duration timeout) {
    MutexLock lock(&mutex_);
    if (rings_ == rings) rung_.WaitFor(&mutex_, timeout);
  }

 private:
  mutable Mutex mutex_;
  CondVar rung_;
  int64_t rings_ ABSL_GUARDED_BY(mutex_) = 0;
};

class TeacherClients final : public TeacherClient {
 public:
  using ByName = std::map<std::string, std::unique_ptr<TeacherClient>>;

  // Starts a client of each: TeacherClient::Start. The workers of a further
  // teacher serve their model as it is and get no weights.
  static absl::StatusOr<std::unique_ptr<TeacherClient>> Start(
      WorkerClientOptions own,
      std::map<std::string, WorkerClientOptions> further);

  // `bell`: rung by the clients after each result.
  TeacherClients(std::unique_ptr<TeacherClient> own,
                 ByName further,
                 std::shared_ptr<ResultBell> bell);

  // For the student's own teachers.
  void SetWeights(PolicyUpdates updates) override;
  void Submit(ScoreTask task) override;
  absl::StatusOr<std::optional<ScoreResult>> NextWithin(
      absl::Duration timeout) override;
  // Returns the own workers, followed by the workers of each further teacher.
  std::vector<WorkerState> Workers() const override;
  void Shutdown() override;
  void SubmitPrefix(ScoreTask partial) override;
  void WithdrawPrefix(uint64_t id) override;

 private:
  struct Pool {
    std::unique_ptr<TeacherClient> client;
    int64_t outstanding = 0;  // tasks without a result
  };

  // By name; the own teachers' is empty. Only their counts change.
  std::map<std::string, Pool> pools_;
  const std::shared_ptr<ResultBell> bell_;
  mutable Mutex mutex_;  // of the counts
};

}  // namespace dapd
