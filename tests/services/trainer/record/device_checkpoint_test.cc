// Tests a checkpoint of a policy on a GPU that the host simulates.
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "services/trainer/record/checkpoint.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/tiny_model.h"
#include "tests/fakes/torch_device/torch_device.h"

namespace dapd {
namespace {

// The error would look like a full disk, and the trainer would wait for ever.
TEST(DeviceCheckpointTest, AFullGpuDoesNotKeepACheckpointFromBeingSaved) {
  const std::string folder = TempPath("device_checkpoint_test");
  WriteTinyModel(folder + "/model", 7);
  const ModelConfig model = ReadModelConfig(folder + "/model").value();
  const std::string checkpoints = JoinPath(folder, "checkpoints");
  ASSERT_TRUE(MakeDirectories(checkpoints).ok());
  const at::Device device = {at::kCUDA, 0};
  Policy policy(MakeFreshAdapter(model, {.rank = 2, .alpha = 4}, 7, device),
                std::nullopt,
                {.learning_rate = 0.1});
  policy.SetFlatGradient(at::ones_like(policy.FlatGradient()));
  ASSERT_TRUE(policy.Step().ok());

  LimitDeviceMemory(WorkOfDevice().live_bytes + 1);
  const absl::Status saved =
      SaveCheckpoint(checkpoints, model, policy, RunIdentity(), /*keep=*/2);
  LimitDeviceMemory(0);
  ASSERT_TRUE(saved.ok()) << saved;
  const auto state =
      LoadNewestCheckpoint(checkpoints, RunIdentity(), model, at::kCPU);
  ASSERT_TRUE(state.ok()) << state.status();
  const std::vector<at::Tensor> kept = (*state)->live.Tensors();
  const std::vector<at::Tensor> live = policy.live().Tensors();
  ASSERT_EQ(kept.size(), live.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_TRUE(at::equal(kept[i].detach(), live[i].detach().cpu()));
  }
}

}  // namespace
}  // namespace dapd
