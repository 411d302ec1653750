// LocalWorker: a rollout worker inside this process, for a model that no other
// process serves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"

#include "common/config/config.h"
#include "services/rollout/rollout_service.h"
#include "services/rollout/rollout_worker.h"

namespace dapd {

struct LocalWorkerOptions {
  std::string model_folder;
  std::string adapter_folder;  // empty: the base
  Precision precision = Precision::kFloat32;
  DeviceChoice device = DeviceChoice::kAuto;
  int64_t slots = 32;
  KvPrecision kv_precision = KvPrecision::kModel;
};

class LocalWorker {
 public:
  // Blocks until model and adapter are read and served.
  static absl::StatusOr<std::unique_ptr<LocalWorker>> Load(
      const LocalWorkerOptions& options, int64_t num_tokens);
  // Fails the answers that are sampled.
  ~LocalWorker();

  // Returns a channel to the worker that never leaves the process.
  std::shared_ptr<grpc::Channel> Channel();

 private:
  LocalWorker() = default;

  RolloutService service_;
  std::unique_ptr<RolloutWorker> worker_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace dapd
