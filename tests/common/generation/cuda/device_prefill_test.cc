// Tests prompts through the packed weights on a GPU that the host simulates:
// their numbers against the CPU, and the work that they cause on the device.

#include <iostream>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/cuda/cuda_prefill.h"
#include "tests/fakes/prefill_pages.h"
#include "tests/fakes/torch_device/device_model.h"
#include "tests/fakes/torch_device/torch_device.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

struct DevicePrefilled {
  at::Tensor logits;
  std::vector<PrefillPrompt> prompts;
  DeviceWork work;
};

DevicePrefilled Prefill(const ModelWeights& base,
                        const Adapter& adapter,
                        const std::vector<std::vector<int32_t>>& ids) {
  const at::NoGradGuard no_grad;
  ModelWeights weights = base;
  PackedWeights packed(
      weights, AdapterForm::kColumns, &adapter.config, nullptr);
  packed.Apply(&adapter);
  DevicePrefilled prefilled;
  for (const std::vector<int32_t>& prompt : ids) {
    prefilled.prompts.push_back({prompt, EmptyPages(weights, 1)});
  }
  ResetWorkOfDevice();
  prefilled.logits = PrefillPrompts(weights, packed, prefilled.prompts);
  prefilled.work = WorkOfDevice();
  return prefilled;
}

TEST(DevicePrefillTest, PromptsPassByOneAttentionALayerAndWithoutAWait) {
  const auto weights = MakeSmallModel(at::kBFloat16);
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const auto on_device = OnSimulatedDevice(*weights);
  const Adapter there = OnSimulatedDevice(adapter);
  const std::vector<std::vector<int32_t>> ids = {RandomModelIds(9, 1),
                                                 RandomModelIds(40, 2),
                                                 RandomModelIds(70, 3),
                                                 RandomModelIds(1, 4)};
  const DevicePrefilled expected = Prefill(*weights, adapter, ids);
  const DevicePrefilled got = Prefill(*on_device, there, ids);
  EXPECT_EQ(got.logits.scalar_type(), at::kFloat);
  const at::Tensor logits = got.logits.cpu();
  const double error =
      ((logits - expected.logits).norm() / expected.logits.norm())
          .item<double>();
  std::cout << "logits " << error << ", " << got.work.num_launches()
            << " launches for four prompts\n";
  EXPECT_LT(error, 5e-2);
  for (size_t i = 0; i < ids.size(); ++i) {
    const at::Tensor pages = got.prompts[i].pages.cpu().to(at::kFloat);
    const at::Tensor wanted = expected.prompts[i].pages.to(at::kFloat);
    EXPECT_LT(((pages - wanted).norm() / wanted.norm()).item<double>(), 5e-2);
  }
  EXPECT_EQ(got.work.Launches("aten::_flash_attention_forward"), 2);
  EXPECT_EQ(got.work.waits, 0);
  EXPECT_EQ(got.work.pageable_copies, 0);
  // A single prompt causes the same work, except for the copies into its pages.
  for (size_t i = 0; i < ids.size(); ++i) {
    const DevicePrefilled alone = Prefill(*on_device, there, {ids[i]});
    EXPECT_EQ(alone.work.num_launches() + 3, got.work.num_launches());
    EXPECT_TRUE(at::allclose(alone.logits.cpu()[0],
                             logits[static_cast<int64_t>(i)],
                             /*rtol=*/1e-2,
                             /*atol=*/1e-2));
  }
}

}  // namespace
}  // namespace dapd
