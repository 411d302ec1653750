#include "services/trainer/status/trainer_service.h"

#include "services/trainer/status/status_message.h"

namespace dapd {

grpc::Status TrainerService::GetStatus(grpc::ServerContext*,
                                       const v1::GetStatusRequest*,
                                       v1::GetStatusResponse* response) {
  *response = StatusMessage(*status_);
  return grpc::Status::OK;
}

}  // namespace dapd
