// The decoder on a GPU against the CPU. Skips itself without one.

#include "gtest/gtest.h"

#include "common/model/reference/decoder.h"
#include "common/model/weights/placement.h"
#include "tests/fakes/random_model.h"

namespace dapd {
namespace {

std::shared_ptr<const ModelWeights> OnDevice(const ModelWeights& weights,
                                             at::Device device) {
  auto copy = std::make_shared<ModelWeights>(weights);
  for (const WeightSlot& slot : WeightSlots(*copy)) {
    *slot.target = slot.target->to(device);
  }
  if (copy->config.tied_embeddings) copy->head = copy->embedding;
  return copy;
}

TEST(CudaParityTest, LogitsAgreeWithTheCpu) {
  const auto device = ParseDevice("cuda");
  if (!device.ok()) {
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
    GTEST_SKIP() << "no CUDA device: " << device.status().message();
  }
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto weights = MakeRandomModel(family);
    const auto on_gpu = OnDevice(*weights, *device);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 60; ++i) ids.push_back(i * 7 % 97);
    const auto logits = [&](const ModelWeights& model) {
      const PackedTokens tokens = PackTokens({ids}, model.device());
      at::NoGradGuard no_grad;
      return ApplyHead(model,
                       ForwardHidden(model,
                                     nullptr,
                                     tokens,
                                     at::arange(60, tokens.ids.options())))
          .cpu();
    };
    const double error =
        (logits(*weights) - logits(*on_gpu)).abs().max().item<double>();
    RecordProperty(family, std::to_string(error));
    EXPECT_LT(error, 2e-3) << family;
  }
}

}  // namespace
}  // namespace dapd
