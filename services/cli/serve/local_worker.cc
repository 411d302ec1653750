#include "services/cli/serve/local_worker.h"

#include <utility>

#include "absl/time/time.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"

#include "common/base/end_for_restart.h"
#include "common/base/status_macros.h"
#include "common/rpc/transfer/served_policy.h"
#include "services/cli/serve/local_model.h"
#include "services/rollout/engine_sampler.h"

namespace dapd {
absl::StatusOr<std::unique_ptr<LocalWorker>> LocalWorker::Load(
    const LocalWorkerOptions& options, int64_t num_tokens) {
  // A wrong adapter is found before the weights are read.
  ASSIGN_OR_RETURN(
      AdapterUpload upload,
      UploadOfFolder(options.model_folder, options.adapter_folder));
  Config config;
  config.model.path = options.model_folder;
  config.model.precision = options.precision;
  config.model.device = options.device;
  config.rollout.slots = options.slots;
  config.rollout.kv_precision = options.kv_precision;
  ASSIGN_OR_RETURN(LoadedSampler loaded, LoadEngineSampler(config, num_tokens));
  std::unique_ptr<LocalWorker> local(new LocalWorker());
  local->worker_ = std::make_unique<RolloutWorker>(
      std::move(loaded.sampler),
      RolloutWorker::Options{.on_broken = EndForRestart});
  RETURN_IF_ERROR(
      local->worker_->Load(std::move(upload), [] { return false; }).status());
  local->service_.Attach(local->worker_.get(), loaded.description);
  grpc::ServerBuilder builder;
  builder.RegisterService(&local->service_);
  local->server_ = builder.BuildAndStart();
  if (local->server_ == nullptr) {
    return absl::InternalError("the worker in this process did not start");
  }
  return local;
}

LocalWorker::~LocalWorker() {
  if (worker_ != nullptr) worker_->Shutdown(absl::ZeroDuration());
  if (server_ != nullptr) server_->Shutdown();
}

std::shared_ptr<grpc::Channel> LocalWorker::Channel() {
  return server_->InProcessChannel(grpc::ChannelArguments());
}

}  // namespace dapd
