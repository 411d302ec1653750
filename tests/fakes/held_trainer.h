// Implements a trainer that answers GetStatus at once or, while `hold` is set,
// when the call is cancelled.
#pragma once

#include <atomic>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "dapd/v1/trainer.grpc.pb.h"

namespace dapd {

class HeldTrainer : public v1::TrainerService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    ++calls;
    while (hold && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    response->set_run_name("fake");
    return context->IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
  }
  std::atomic<bool> hold = false;
  std::atomic<int> calls = 0;  // calls that have begun
};

}  // namespace dapd
