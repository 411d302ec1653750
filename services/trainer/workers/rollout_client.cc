#include "services/trainer/workers/rollout_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/pool/worker_pool.h"
#include "common/rpc/rpc_credentials.h"
#include "services/trainer/workers/rollout_session.h"

namespace dapd {
namespace {

class PooledRolloutClient final : public RolloutClient {
 public:
  PooledRolloutClient(WorkerPoolOptions options,
                      std::shared_ptr<const RpcCredentials> credentials,
                      const ExpectedWorker& expected,
                      Timeline* timeline)
      : pool_(options,
              [this,
               expected,
               timeline,
               credentials = std::move(credentials),
               timeout = options.task_timeout](const std::string& endpoint) {
                return std::make_unique<RolloutSession>(
                    endpoint,
                    *credentials,
                    expected,
                    timeout,
                    timeline,
                    [this](uint64_t id, const std::vector<int32_t>& ids) {
                      Tell(id, ids);
                    });
              }) {}

  void SetPolicy(std::shared_ptr<const PolicyUpdate> policy) override {
    pool_.SetUpdates({{WeightSet::kLive, std::move(policy)}});
  }
  void Listen(OnTokens on_tokens) override {
    MutexLock lock(&mutex_);
    on_tokens_ = std::move(on_tokens);
  }
  void Submit(RolloutTask task) override { pool_.Submit(std::move(task)); }
  absl::StatusOr<std::optional<RolloutResult>> NextWithin(
      absl::Duration timeout) override {
    return pool_.NextWithin(timeout);
  }
  std::vector<WorkerState> Workers() const override { return pool_.Workers(); }
  void Shutdown() override { pool_.Shutdown(); }

 private:
  void Tell(uint64_t id, const std::vector<int32_t>& ids) {
    MutexLock lock(&mutex_);
    if (on_tokens_) on_tokens_(id, ids);
  }

  Mutex mutex_;
  OnTokens on_tokens_ ABSL_GUARDED_BY(mutex_);
  WorkerPool<RolloutTask, RolloutResult> pool_;
};

}  // namespace

absl::Duration AnswerTimeout(absl::Duration usual, int64_t max_new_tokens) {
  constexpr double kUsualTokens = 2400;
  return usual *
         std::max(1.0, static_cast<double>(max_new_tokens) / kUsualTokens);
}

absl::StatusOr<RolloutResult> RolloutClient::Next() {
  ASSIGN_OR_RETURN(std::optional<RolloutResult> result,
                   NextWithin(absl::InfiniteDuration()));
  return *std::move(result);
}

absl::StatusOr<std::unique_ptr<RolloutClient>> RolloutClient::Start(
    RolloutClientOptions options) {
  RETURN_IF_ERROR(CheckWorkerAddresses(options.addresses));
  WorkerPoolOptions pool;
  pool.role = "rollout";
  pool.addresses = std::move(options.addresses);
  pool.task_timeout = options.task_timeout;
  pool.peer_timeout = options.peer_timeout;
  pool.observer = std::move(options.observer);
  return std::unique_ptr<RolloutClient>(new PooledRolloutClient(
      std::move(pool),
      options.credentials == nullptr ? RpcCredentials::Loopback()
                                     : std::move(options.credentials),
      options.expected,
      options.timeline));
}

}  // namespace dapd
