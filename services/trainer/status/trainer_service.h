// TrainerService: answers GetStatus from a TrainerStatus, which it does not
// change. Thread-safe.
#pragma once

#include "dapd/v1/trainer.grpc.pb.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {

class TrainerService final : public v1::TrainerService::Service {
 public:
  // `status` must outlive the service.
  explicit TrainerService(const TrainerStatus* status) : status_(status) {}

  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;

 private:
  const TrainerStatus* const status_;
};

}  // namespace dapd
