// RolloutService: the gRPC interface of a RolloutWorker
// (proto/dapd/v1/rollout.proto defines the order of messages). A handler
// converts messages and passes them on; it computes nothing.
//
// It answers UNAVAILABLE until a worker is attached, so that a server can
// listen and report its health while the model is still being read.
#pragma once

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"

#include "common/rpc/transfer/attached_worker.h"
#include "common/rpc/transfer/served_policy.h"
#include "dapd/v1/rollout.grpc.pb.h"
#include "services/rollout/rollout_worker.h"

namespace dapd {

// Checks everything that does not depend on the policy: prompt ids in the
// vocabulary, prompt and answer within the model's positions, sampling
// parameters in range. INVALID_ARGUMENT names the field and the value.
absl::StatusOr<DecodeRequest> ParseGenerateRequest(
    const v1::GenerateRequest& message, const WorkerDescription& limits);

class RolloutService final : public v1::RolloutService::Service {
 public:
  RolloutService();

  // Must be called once. `worker` must outlive the server.
  void Attach(RolloutWorker* worker, const WorkerDescription& description) {
    worker_.Attach(worker, description);
  }

  grpc::Status Describe(grpc::ServerContext* context,
                        const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;
  grpc::Status Generate(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::GenerateResponse, v1::GenerateRequest>*
          stream) override;

 private:
  AttachedWorker<RolloutWorker> worker_{"rollout"};
};

}  // namespace dapd
