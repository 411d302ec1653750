#include "services/trainer/workers/teacher_clients.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

// How long a pool's own errors, which ring no bell, may stay unnoticed.
constexpr absl::Duration kErrorPoll = absl::Milliseconds(100);

// Returns a client whose results ring the bell.
absl::StatusOr<std::unique_ptr<TeacherClient>> StartWithBell(
    WorkerClientOptions options, std::shared_ptr<ResultBell> bell) {
  options.observer.on_outcome = [told = std::move(options.observer.on_outcome),
                                 bell = std::move(bell)](TaskOutcome outcome) {
    if (told) told(outcome);
    bell->Ring();
  };
  return TeacherClient::Start(std::move(options));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TeacherClient>> TeacherClients::Start(
    WorkerClientOptions own,
    std::map<std::string, WorkerClientOptions> further) {
  const auto bell = std::make_shared<ResultBell>();
  ASSIGN_OR_RETURN(std::unique_ptr<TeacherClient> own_client,
                   StartWithBell(std::move(own), bell));
  ByName clients;
  for (auto& [name, options] : further) {
    ASSIGN_OR_RETURN(clients[name], StartWithBell(std::move(options), bell));
    clients[name]->SetWeights({});
  }
  return std::make_unique<TeacherClients>(
      std::move(own_client), std::move(clients), bell);
}

TeacherClients::TeacherClients(std::unique_ptr<TeacherClient> own,
                               ByName further,
                               std::shared_ptr<ResultBell> bell)
    : bell_(std::move(bell)) {
  pools_[""].client = std::move(own);
  for (auto& [name, client] : further) pools_[name].client = std::move(client);
}

void TeacherClients::SetWeights(PolicyUpdates updates) {
  pools_.at("").client->SetWeights(std::move(updates));
}

void TeacherClients::Submit(ScoreTask task) {
  Pool& pool = pools_.at(task.teacher);
  pool.client->Submit(std::move(task));
  {
    // Only now: a pool that is asked without a task returns an error.
    MutexLock lock(&mutex_);
    ++pool.outstanding;
  }
  bell_->Ring();  // a waiting thread must ask this pool from now on
}

absl::StatusOr<std::optional<ScoreResult>> TeacherClients::NextWithin(
    absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  while (true) {
    const int64_t rings = bell_->rings();
    std::vector<Pool*> waiting;
    {
      MutexLock lock(&mutex_);
      for (auto& [name, pool] : pools_) {
        if (pool.outstanding > 0) waiting.push_back(&pool);
      }
    }
    if (waiting.empty()) {
      return absl::FailedPreconditionError(
          "no teacher task was submitted: there is nothing to wait for");
    }
    for (Pool* pool : waiting) {
      ASSIGN_OR_RETURN(std::optional<ScoreResult> result,
                       pool->client->NextWithin(absl::ZeroDuration()));
      if (!result.has_value()) continue;
      MutexLock lock(&mutex_);
      --pool->outstanding;
      return result;
    }
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    bell_->WaitFor(rings, std::min(left, kErrorPoll));
  }
}

std::vector<WorkerState> TeacherClients::Workers() const {
  std::vector<WorkerState> workers;
  for (const auto& [name, pool] : pools_) {
    for (WorkerState& worker : pool.client->Workers()) {
      worker.teacher = name;
      workers.push_back(std::move(worker));
    }
  }
  return workers;
}

void TeacherClients::Shutdown() {
  for (auto& [name, pool] : pools_) pool.client->Shutdown();
  bell_->Ring();
}

void TeacherClients::SubmitPrefix(ScoreTask partial) {
  TeacherClient& client = *pools_.at(partial.teacher).client;
  client.SubmitPrefix(std::move(partial));
}

// A pool ignores ids that it does not know.
void TeacherClients::WithdrawPrefix(uint64_t id) {
  for (auto& [name, pool] : pools_) pool.client->WithdrawPrefix(id);
}

}  // namespace dapd
