// Compares the decoder and training's element-wise work on a GPU with the CPU.
// Skips itself without a GPU.

#include "gtest/gtest.h"

#include "common/model/fast/device_rows.h"
#include "common/model/fast/layer_math.h"
#include "common/model/reference/decoder.h"
#include "common/model/weights/placement.h"
#include "tests/fakes/model_on_device.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/relative_error.h"

namespace dapd {
namespace {

TEST(CudaParityTest, LogitsAgreeWithTheCpu) {
  const auto device = DeviceOf(DeviceChoice::kCuda);
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

// Compares norms, rotations, SwiGLU and their gradients at Qwen3-4B's sizes.
TEST(CudaParityTest, TrainingRowsAgreeWithTheCpu) {
  const auto device = DeviceOf(DeviceChoice::kCuda);
  if (!device.ok()) GTEST_SKIP() << "no CUDA device";
  const at::NoGradGuard no_grad;
  constexpr double kEps = 1e-6;
  ModelConfig config;
  config.head_dim = 128;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const double limit = dtype == at::kFloat ? 1e-5 : 1e-2;
    const auto random = [&](at::IntArrayRef shape) {
      return at::randn(shape).to(dtype).to(at::kFloat);
    };
    const auto on = [&](const at::Tensor& tensor) {
      return tensor.to(*device, dtype);
    };
    const at::Tensor x = random({37, 2560});
    const at::Tensor weight = random({2560});
    const at::Tensor grad = random({37, 2560});
    ASSERT_NE(DeviceRowsFor(on(x)), nullptr) << "a build without kernels";

    at::Tensor sum = on(grad);
    const at::Tensor normed = AddAndNorm(on(x), on(weight), kEps, 192, &sum);
    EXPECT_EQ(normed.stride(0), 2560 + 192);
    EXPECT_LT(RelativeError(sum, x + grad), limit);
    EXPECT_LT(RelativeError(normed, Norm(x + grad, weight, kEps)), limit);
    at::Tensor grad_x = grad.clone();
    at::Tensor grad_x_on = on(grad);
    AddNormBackward(grad, x, weight, kEps, &grad_x);
    AddNormBackward(on(grad), on(x), on(weight), kEps, &grad_x_on);
    EXPECT_LT(RelativeError(grad_x_on, grad_x), limit);

    const at::Tensor positions = at::arange(37, at::kLong);
    const RotaryAngles angles = MakeRotaryAngles(config, positions, at::kFloat);
    const RotaryAngles angles_on =
        MakeRotaryAngles(config, positions.to(*device), dtype);
    const at::Tensor heads = random({37, 32, 128});
    const at::Tensor pull = random({37, 32, 128});
    const at::Tensor norm = random({128});
    EXPECT_LT(RelativeError(NormAndRotate(on(heads), on(norm), kEps, angles_on),
                            NormAndRotate(heads, norm, kEps, angles)),
              limit);
    EXPECT_LT(RelativeError(NormAndRotateBackward(
                                on(pull), on(heads), on(norm), kEps, angles_on),
                            NormAndRotateBackward(
                                pull.clone(), heads, norm, kEps, angles)),
              limit);

    at::Tensor gate = random({37, 9728});
    at::Tensor up = random({37, 9728});
    const at::Tensor out = random({37, 9728});
    EXPECT_LT(
        RelativeError(GatedProduct(on(gate), on(up)), GatedProduct(gate, up)),
        limit);
    at::Tensor gate_on = on(gate);
    at::Tensor up_on = on(up);
    GatedProductBackward(on(out), &gate_on, &up_on);
    GatedProductBackward(out, &gate, &up);
    EXPECT_LT(RelativeError(gate_on, gate), limit);
    EXPECT_LT(RelativeError(up_on, up), limit);
  }
}

}  // namespace
}  // namespace dapd
