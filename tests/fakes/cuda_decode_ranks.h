// Runs ranks that decode together. Each is a thread with its own simulated
// device (tests/fakes/cuda_on_host.h); NCCL between them is simulated
// (tests/fakes/nccl_ranks.h). Also makes models that ranks can share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/collective/device_group.h"
#include "common/generation/cuda/cuda_decode_backend.h"
#include "tests/fakes/nccl_ranks.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/random_shards.h"
#include "tests/fakes/thread_ranks.h"

namespace dapd {

// Represents the group of ranks for a thread's simulated device.
class SimulatedGroup final
    : public DeviceGroup,
      public std::enable_shared_from_this<SimulatedGroup> {
 public:
  SimulatedGroup(Collective& collective, double timeout_seconds) {
    char error[kNcclErrorBytes] = "";
    std::string id(kNcclIdBytes, '\0');
    if (collective.rank() == 0) DapdNcclUniqueId(id.data(), error);
    EXPECT_TRUE(collective.Broadcast(&id).ok());
    ranks_ = {.rank = collective.rank(),
              .size = collective.size(),
              .timeout_seconds = timeout_seconds};
    EXPECT_EQ(DapdNcclInit(id.data(),
                           ranks_.rank,
                           ranks_.size,
                           ranks_.timeout_seconds,
                           &ranks_.communicator,
                           error),
              0)
        << error;
  }
  ~SimulatedGroup() override {
    if (!is_aborted_) DapdNcclDestroy(ranks_.communicator);
  }

  absl::Status Sum(at::Tensor& /*values*/) override {
    return absl::UnimplementedError("decoding takes none that waits");
  }
  absl::StatusOr<std::vector<at::Tensor>> AllGather(
      std::span<const at::Tensor> /*parts*/) override {
    return absl::UnimplementedError("decoding takes none that waits");
  }
  absl::Status Broadcast(std::span<const at::Tensor> tensors) override {
    std::vector<NcclShared> shared;
    for (const at::Tensor& tensor : tensors) {
      shared.push_back(
          {tensor.mutable_data_ptr(), static_cast<int64_t>(tensor.nbytes())});
    }
    char error[kNcclErrorBytes] = "";
    const int code = DapdNcclBroadcast(&ranks_,
                                       shared.data(),
                                       static_cast<int64_t>(shared.size()),
                                       /*stream=*/nullptr,
                                       error);
    return code == 0 ? absl::OkStatus() : absl::AbortedError(error);
  }
  NcclRanks nccl() const override { return ranks_; }
  void Abort() override {
    DapdNcclAbort(ranks_.communicator);
    is_aborted_ = true;
  }
  bool is_aborted() const { return is_aborted_; }

 private:
  NcclRanks ranks_;
  bool is_aborted_ = false;
};

// Describes a model whose heads, MLP and vocabulary ranks can share.
struct ShareableShape {
  std::string family = "qwen3";
  int64_t vocab = 104;  // each of two ranks computes a half
  bool output_biases = false;
  int64_t heads = 4;
  int64_t kv_heads = 2;
};

inline std::shared_ptr<const ModelWeights> MakeShareable(
    const ShareableShape& shape, at::ScalarType dtype = at::kFloat) {
  auto weights = std::make_shared<ModelWeights>(*MakeRandomModel(shape.family));
  ModelConfig& config = weights->config;
  config.vocab_size = shape.vocab;
  config.head_dim = 16;
  config.num_heads = shape.heads;
  config.num_kv_heads = shape.kv_heads;
  config.intermediate_size = 64;
  config.max_positions = 2048;
  config.output_bias = shape.output_biases;
  config.mlp_bias = shape.output_biases;
  config.qkv_bias = config.qkv_bias || shape.output_biases;
  DrawWeights(5, 0.3, dtype, weights.get());
  return weights;
}

// None of its answers ends early.
inline std::shared_ptr<const ModelWeights> EndlessShareable(int64_t vocab) {
  auto weights =
      std::make_shared<ModelWeights>(*MakeShareable({"qwen3", vocab}));
  weights->config.eos_token_ids = {1000};
  return weights;
}

// Calls `body` once for each rank, with its backend over its share.
inline void RunRanks(
    int size,
    const ModelWeights& whole,
    const CudaDecodeOptions& options,
    const CudaDecodeApi& api,
    const std::function<void(Collective& collective,
                             SimulatedGroup& group,
                             std::unique_ptr<CudaDecodeBackend> own)>& body,
    double timeout_seconds = 60) {
  RunThreadRanks(size, [&](Collective& collective) {
    const auto group =
        std::make_shared<SimulatedGroup>(collective, timeout_seconds);
    const auto share = ShardModel(whole, {collective.rank(), size});
    auto own = std::make_unique<CudaDecodeBackend>(
        CudaWeightsOfRank(*share),
        options,
        api,
        CudaDecodeRanks{whole.config, share->layout, group, &collective});
    body(collective, *group, std::move(own));
  });
}

}  // namespace dapd
