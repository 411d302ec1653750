#include "services/trainer/workers/teacher_client.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/pool/worker_pool.h"
#include "common/rpc/rpc_credentials.h"
#include "services/trainer/workers/teacher_session.h"

namespace dapd {
namespace {

class PooledTeacherClient final : public TeacherClient {
 public:
  PooledTeacherClient(WorkerPoolOptions options,
                      std::shared_ptr<const RpcCredentials> credentials,
                      const ExpectedWorker& expected,
                      Timeline* timeline,
                      int64_t connections)
      : pool_(options,
              [expected,
               timeline,
               connections,
               credentials = std::move(credentials),
               timeout = options.task_timeout](const std::string& endpoint) {
                return std::make_unique<TeacherSession>(endpoint,
                                                        *credentials,
                                                        expected,
                                                        timeout,
                                                        timeline,
                                                        connections);
              }) {}

  void SetWeights(PolicyUpdates updates) override {
    pool_.SetUpdates(std::move(updates));
  }
  void Submit(ScoreTask task) override { pool_.Submit(std::move(task)); }
  void SubmitPrefix(ScoreTask partial) override {
    pool_.SubmitPrefix(std::move(partial));
  }
  void WithdrawPrefix(uint64_t id) override { pool_.WithdrawPrefix(id); }
  absl::StatusOr<std::optional<ScoreResult>> NextWithin(
      absl::Duration timeout) override {
    return pool_.NextWithin(timeout);
  }
  std::vector<WorkerState> Workers() const override { return pool_.Workers(); }
  void Shutdown() override { pool_.Shutdown(); }

 private:
  WorkerPool<ScoreTask, ScoreResult> pool_;
};

}  // namespace

absl::StatusOr<ScoreResult> TeacherClient::Next() {
  ASSIGN_OR_RETURN(std::optional<ScoreResult> result,
                   NextWithin(absl::InfiniteDuration()));
  return *std::move(result);
}

absl::StatusOr<std::unique_ptr<TeacherClient>> TeacherClient::Start(
    TeacherClientOptions options) {
  RETURN_IF_ERROR(CheckWorkerAddresses(options.addresses));
  WorkerPoolOptions pool;
  pool.role = "teacher";
  pool.addresses = std::move(options.addresses);
  pool.task_timeout = options.task_timeout;
  pool.peer_timeout = options.peer_timeout;
  pool.observer = std::move(options.observer);
  return std::unique_ptr<TeacherClient>(new PooledTeacherClient(
      std::move(pool),
      options.credentials == nullptr ? RpcCredentials::Loopback()
                                     : std::move(options.credentials),
      options.expected,
      options.timeline,
      options.connections));
}

}  // namespace dapd
