// A WorkerPool over two fake workers, for the tests of its parts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/base/mutex.h"
#include "common/rpc/pool/worker_pool.h"
#include "tests/fakes/fake_worker.h"

namespace dapd {

// Handles a task of a worker that never answers.
inline std::vector<FakeAnswer> NoAnswer(const FakeTask&, int64_t) { return {}; }

// Has a name service that a test can change, two workers, and counts of
// outcomes.
class WorkerPoolFixture : public ::testing::Test {
 protected:
  using Pool = WorkerPool<FakeTask, FakeResult>;

  WorkerPoolFixture() {
    options_.role = "rollout";
    options_.addresses = {"workers:1"};
    options_.resolve_interval = absl::Milliseconds(20);
    options_.task_timeout = absl::Seconds(30);
    options_.peer_timeout = absl::Seconds(30);
    options_.backoff.initial = absl::Milliseconds(5);
    options_.backoff.max = absl::Milliseconds(20);
    options_.resolver = [names = names_](const std::string&) {
      MutexLock lock(&names->mutex);
      ++names->times_resolved;
      return names->endpoints;
    };
    options_.observer.on_outcome = [this](TaskOutcome outcome) {
      MutexLock lock(&mutex_);
      ++outcomes_[TaskOutcomeName(outcome)];
    };
  }

  void Start(int64_t version = 1) {
    pool_ = std::make_unique<Pool>(options_, [this](const std::string& where) {
      const auto found = workers_.find(where);
      return std::make_unique<FakeSession>(
          found == workers_.end() ? nullptr : found->second);
    });
    SetVersion(version);
  }
  void SetVersion(int64_t version) {
    auto update = std::make_shared<PolicyUpdate>();
    update->version = version;
    pool_->SetUpdates({{WeightSet::kLive, update}});
  }

  void SetEndpoints(absl::StatusOr<std::vector<std::string>> endpoints) {
    MutexLock lock(&names_->mutex);
    names_->endpoints = std::move(endpoints);
  }
  int TimesResolved() {
    MutexLock lock(&names_->mutex);
    return names_->times_resolved;
  }
  int OutcomeCount(const std::string& name) {
    MutexLock lock(&mutex_);
    return outcomes_[name];
  }

  bool HasWorkerIn(const std::string& address, WorkerStage stage) {
    for (const WorkerState& worker : pool_->Workers()) {
      if (worker.address == address && worker.stage == stage) return true;
    }
    return false;
  }

  // Returns the ids of the next `count` results in order of arrival.
  std::vector<uint64_t> Collect(int count) {
    std::vector<uint64_t> ids;
    for (int i = 0; i < count; ++i) {
      const absl::StatusOr<FakeResult> result = pool_->Next();
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) break;
      ids.push_back(result->id);
    }
    return ids;
  }

  // A shared_ptr holds it, because a look-up may outlive the pool on a busy
  // machine.
  struct NameService {
    Mutex mutex;
    absl::StatusOr<std::vector<std::string>> endpoints =
        std::vector<std::string>{"a"};
    int times_resolved = 0;
  };

  const std::shared_ptr<NameService> names_ = std::make_shared<NameService>();
  Mutex mutex_;
  std::map<std::string, int> outcomes_;
  FakeWorker a_{"a"};
  FakeWorker b_{"b"};
  // Maps an endpoint to its worker; nothing listens at other endpoints.
  std::map<std::string, FakeWorker*> workers_ = {{"a", &a_}, {"b", &b_}};
  WorkerPoolOptions options_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace dapd
