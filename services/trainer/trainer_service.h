// TrainerService: answers GetStatus from a TrainerStatus and the clients'
// worker states. It changes nothing. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/rpc/worker_pool_options.h"
#include "dapd/v1/trainer.grpc.pb.h"
#include "services/trainer/trainer_status.h"

namespace dapd {

class TrainerService final : public v1::TrainerService::Service {
 public:
  using Workers = std::function<std::vector<WorkerState>()>;

  // `status` must outlive the service, and what the functions use as well.
  TrainerService(const TrainerStatus* status,
                 Workers rollout_workers,
                 Workers teacher_workers);

  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;

 private:
  const TrainerStatus* const status_;
  const Workers rollout_workers_;
  const Workers teacher_workers_;
};

}  // namespace dapd
