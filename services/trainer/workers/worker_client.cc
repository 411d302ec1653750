#include "services/trainer/workers/worker_client.h"

#include <algorithm>

#include "common/base/mutex.h"
#include "common/rpc/pool/worker_pool.h"
#include "common/rpc/rpc_credentials.h"
#include "services/trainer/workers/rollout_session.h"
#include "services/trainer/workers/teacher_session.h"

namespace dapd {
namespace {

// Null credentials are replaced, too.
absl::StatusOr<WorkerPoolOptions> PoolOptions(Role role,
                                              WorkerClientOptions* options) {
  RETURN_IF_ERROR(CheckWorkerAddresses(options->addresses));
  if (options->credentials == nullptr) {
    options->credentials = RpcCredentials::Loopback();
  }
  WorkerPoolOptions pool;
  pool.role = RoleName(role);
  pool.teacher = options->expected.teacher;
  pool.addresses = std::move(options->addresses);
  pool.task_timeout = options->task_timeout;
  pool.peer_timeout = options->peer_timeout;
  pool.observer = std::move(options->observer);
  return pool;
}

// The part of a client that every role shares.
template <typename Client>
class PooledClient : public Client {
 public:
  using Task = typename Client::Task;
  using Result = typename Client::Result;
  using Pool = WorkerPool<Task, Result>;

  PooledClient(WorkerPoolOptions options,
               typename Pool::SessionFactory make_session)
      : pool_(std::move(options), std::move(make_session)) {}

  void SetWeights(PolicyUpdates updates) override {
    pool_.SetUpdates(std::move(updates));
  }
  void Submit(Task task) override { pool_.Submit(std::move(task)); }
  absl::StatusOr<std::optional<Result>> NextWithin(
      absl::Duration timeout) override {
    return pool_.NextWithin(timeout);
  }
  std::vector<WorkerState> Workers() const override { return pool_.Workers(); }
  void Shutdown() override { pool_.Shutdown(); }

 protected:
  Pool& pool() { return pool_; }

 private:
  Pool pool_;
};

// The sessions share it with the client: it outlives both.
class Listener {
 public:
  void Replace(OnTokens on_tokens) {
    MutexLock lock(&mutex_);
    on_tokens_ = std::move(on_tokens);
  }
  void Tell(uint64_t id, const std::vector<int32_t>& ids) {
    MutexLock lock(&mutex_);
    if (on_tokens_) on_tokens_(id, ids);
  }

 private:
  Mutex mutex_;
  OnTokens on_tokens_ ABSL_GUARDED_BY(mutex_);
};

class PooledRolloutClient final : public PooledClient<RolloutClient> {
 public:
  PooledRolloutClient(WorkerPoolOptions options,
                      Pool::SessionFactory make_session,
                      std::shared_ptr<Listener> listener)
      : PooledClient(std::move(options), std::move(make_session)),
        listener_(std::move(listener)) {}

  void Listen(OnTokens on_tokens) override {
    listener_->Replace(std::move(on_tokens));
  }

 private:
  const std::shared_ptr<Listener> listener_;
};

class PooledTeacherClient final : public PooledClient<TeacherClient> {
 public:
  using PooledClient::PooledClient;

  void SubmitPrefix(ScoreTask partial) override {
    pool().SubmitPrefix(std::move(partial));
  }
  void WithdrawPrefix(uint64_t id) override { pool().WithdrawPrefix(id); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<RolloutClient>> RolloutClient::Start(
    WorkerClientOptions options) {
  ASSIGN_OR_RETURN(WorkerPoolOptions pool,
                   PoolOptions(Role::kRollout, &options));
  const auto listener = std::make_shared<Listener>();
  auto make_session = [options = std::move(options),
                       listener](const std::string& endpoint) {
    return std::make_unique<RolloutSession>(
        endpoint,
        *options.credentials,
        options.expected,
        options.task_timeout,
        options.timeline,
        [listener](uint64_t id, const std::vector<int32_t>& ids) {
          listener->Tell(id, ids);
        });
  };
  return std::make_unique<PooledRolloutClient>(
      std::move(pool), std::move(make_session), listener);
}

absl::StatusOr<std::unique_ptr<TeacherClient>> TeacherClient::Start(
    WorkerClientOptions options) {
  ASSIGN_OR_RETURN(WorkerPoolOptions pool,
                   PoolOptions(Role::kTeacher, &options));
  auto make_session = [options =
                           std::move(options)](const std::string& endpoint) {
    return std::make_unique<TeacherSession>(endpoint,
                                            *options.credentials,
                                            options.expected,
                                            options.task_timeout,
                                            options.timeline,
                                            options.connections);
  };
  return std::make_unique<PooledTeacherClient>(std::move(pool),
                                               std::move(make_session));
}

absl::Duration AnswerTimeout(absl::Duration usual, int64_t max_new_tokens) {
  constexpr double kUsualTokens = 2400;
  return usual *
         std::max(1.0, static_cast<double>(max_new_tokens) / kUsualTokens);
}

}  // namespace dapd
