#include "services/rollout/backend_sampler.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/model/weights/adapter.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

class BackendSampler : public Sampler {
 public:
  BackendSampler(std::unique_ptr<DecodeBackend> backend,
                 at::Device device,
                 const EngineOptions& options)
      : model_(backend->config()),
        device_(device),
        engine_(std::move(backend), options) {}

  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) override {
    std::shared_ptr<const Adapter> adapter;
    if (!upload.is_base) {
      ASSIGN_OR_RETURN(Adapter parsed,
                       ParseAdapter(upload.adapter, model_, device_));
      adapter = std::make_shared<const Adapter>(std::move(parsed));
    }
    is_in_use_ = false;
    absl::StatusOr<AppliedAdapter> applied = Try(adapter, upload.probe_ids);
    if (!applied.ok()) {
      const absl::Status back = UseOwn();
      if (!back.ok()) {
        LogWarning(absl::StrCat(
            "an adapter could not be loaded, and then its predecessor could "
            "not be loaded again; that will be retried when it is needed: ",
            std::string(back.message())));
      }
      return applied;
    }
    is_in_use_ = true;
    adapter_ = std::move(adapter);
    applied->modules_applied = adapter_ == nullptr ? 0 : adapter_->NumModules();
    return applied;
  }

  absl::StatusOr<AppliedAdapter> Probe(
      const std::vector<int32_t>& probe_ids) override {
    RETURN_IF_ERROR(UseOwn());
    ASSIGN_OR_RETURN(AppliedAdapter applied, Score(probe_ids));
    applied.modules_applied = adapter_ == nullptr ? 0 : adapter_->NumModules();
    return applied;
  }

  absl::Status Submit(uint64_t id, DecodeRequest request) override {
    RETURN_IF_ERROR(UseOwn());
    return CatchTorch([&] { return engine_.Submit(id, std::move(request)); });
  }

  void Cancel(uint64_t id) override {
    const absl::Status status = CatchTorch([&] {
      engine_.Cancel(id);
      return absl::OkStatus();
    });
    // The error of a failing device; the next step will report it, too.
    if (!status.ok()) {
      LogWarning(absl::StrCat("an answer could not be stopped: ",
                              std::string(status.message())));
    }
  }

  absl::StatusOr<std::vector<SampledToken>> Step() override {
    std::vector<SampledToken> tokens;
    RETURN_IF_ERROR(CatchTorch([&] {
      tokens = engine_.Step();
      return absl::OkStatus();
    }));
    return tokens;
  }

  int64_t num_free() const override { return engine_.num_free(); }
  KvUse kv_use() const override { return engine_.kv_use(); }

 private:
  // After an error the weights in the backend are unknown.
  absl::StatusOr<AppliedAdapter> Try(
      const std::shared_ptr<const Adapter>& adapter,
      const std::vector<int32_t>& probe_ids) {
    RETURN_IF_ERROR(Use(adapter));
    return Score(probe_ids);
  }

  // Makes sure that the backend computes with adapter_. No sequence runs while
  // it does not, so Load may be called.
  absl::Status UseOwn() {
    if (is_in_use_) return absl::OkStatus();
    RETURN_IF_ERROR(Use(adapter_));
    is_in_use_ = true;
    return absl::OkStatus();
  }

  absl::Status Use(const std::shared_ptr<const Adapter>& adapter) {
    return CatchTorch([&] {
      engine_.SetAdapter(adapter);
      return absl::OkStatus();
    });
  }

  absl::StatusOr<AppliedAdapter> Score(const std::vector<int32_t>& probe_ids) {
    AppliedAdapter applied;
    RETURN_IF_ERROR(CatchTorch([&] {
      applied.probe_logprobs = engine_.ScoreTokens(probe_ids);
      return absl::OkStatus();
    }));
    return applied;
  }

  const ModelConfig model_;
  const at::Device device_;
  std::shared_ptr<const Adapter>
      adapter_;            // the served adapter; null: the base
  bool is_in_use_ = true;  // whether the backend computes with adapter_
  GenerationEngine engine_;
};

}  // namespace

std::unique_ptr<Sampler> MakeBackendSampler(
    std::unique_ptr<DecodeBackend> backend,
    at::Device device,
    const EngineOptions& options) {
  return std::make_unique<BackendSampler>(std::move(backend), device, options);
}

}  // namespace dapd
