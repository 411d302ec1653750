// Tests which implementation computes attention on a device, and what
// FlashAttention-3's launches get, on a device that the host simulates.
#include "common/model/flash_attention_3.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/device_flash_attention.h"
#include "common/model/flash_attention_3_check.h"
#include "common/model/variable_length_attention.h"
#include "tests/fakes/deterministic_algorithms.h"
#include "tests/fakes/same_bits.h"
#include "tests/fakes/torch_device/flash_attention_on_host.h"

namespace dapd {
namespace {

using fake::SimulatedFlashAttention3;

constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;

at::Tensor Random(int64_t rows,
                  int64_t heads,
                  int64_t dim,
                  at::ScalarType dtype = at::kBFloat16) {
  return at::randn({rows, heads, dim}).to(dtype).to(at::kCUDA);
}

bool IsTaken(const at::Tensor& q) {
  const at::Tensor k = q.detach().narrow(1, 0, kKvHeads);
  return FlashAttention3For(q, k, k) != nullptr;
}

TEST(FlashAttention3ChoiceTest, TheDeviceMustHaveIt) {
  const at::NoGradGuard no_grad;
  const at::Tensor q = Random(3, kHeads, 128);
  EXPECT_FALSE(IsTaken(q));
  const SimulatedFlashAttention3 device;
  EXPECT_TRUE(IsTaken(q));
  EXPECT_FALSE(IsTaken(q.cpu())) << "a tensor on the host";
}

TEST(FlashAttention3ChoiceTest, WidthAndDtypeDecide) {
  const at::NoGradGuard no_grad;
  const SimulatedFlashAttention3 device;
  for (const int64_t dim : {16, 64, 80, 96, 128, 192, 256}) {
    const bool has = dim == 64 || dim == 128 || dim == 256;
    EXPECT_EQ(IsTaken(Random(3, kHeads, dim)), has) << dim;
    EXPECT_FALSE(IsTaken(Random(3, kHeads, dim, at::kHalf))) << dim;
    EXPECT_FALSE(IsTaken(Random(3, kHeads, dim, at::kFloat))) << dim;
  }
}

// Its backward pass has no fixed order of sums for this width.
TEST(FlashAttention3ChoiceTest, DeterministicAlgorithmsLeaveOutTheWidest) {
  const at::NoGradGuard no_grad;
  const SimulatedFlashAttention3 device;
  const DeterministicAlgorithms deterministic;
  EXPECT_TRUE(IsTaken(Random(3, kHeads, 64)));
  EXPECT_TRUE(IsTaken(Random(3, kHeads, 128)));
  EXPECT_FALSE(IsTaken(Random(3, kHeads, 256)));
}

// LibTorch knows no gradient of our launches.
TEST(FlashAttention3ChoiceTest, AutogradTakesLibTorch) {
  const SimulatedFlashAttention3 device;
  const at::Tensor q = Random(3, kHeads, 64).requires_grad_(true);
  EXPECT_FALSE(IsTaken(q));
  EXPECT_TRUE(IsTaken(q.detach()));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(IsTaken(q));
}

TEST(FlashAttention3ChoiceTest, RowsAtOddPlacesTakeLibTorch) {
  const at::NoGradGuard no_grad;
  const SimulatedFlashAttention3 device;
  const at::Tensor rows = Random(3, kHeads, 68);
  EXPECT_FALSE(IsTaken(rows.narrow(2, 0, 64))) << "strides of 68 numbers";
  const at::Tensor wide = Random(3, kHeads, 72);
  EXPECT_TRUE(IsTaken(wide.narrow(2, 0, 64)));
  EXPECT_TRUE(IsTaken(wide.narrow(2, 8, 64)));
  EXPECT_FALSE(IsTaken(wide.narrow(2, 4, 64))) << "8 bytes behind a place";
  EXPECT_FALSE(IsTaken(Random(3, 64, kHeads).transpose(1, 2)))
      << "numbers of a head apart";
}

// The tensors that both implementations give.
struct Results {
  at::Tensor out;
  AttentionGradients gradients;
};

class FlashAttention3LaunchTest : public testing::TestWithParam<int64_t> {
 protected:
  // q, k and v are parts of one projection, as in a layer.
  void SetUp() override {
    const at::Tensor qkv = Random(70, kHeads + 2 * kKvHeads, GetParam());
    q_ = qkv.narrow(1, 0, kHeads);
    k_ = qkv.narrow(1, kHeads, kKvHeads);
    v_ = qkv.narrow(1, kHeads + kKvHeads, kKvHeads);
    // The gradient lies head by head.
    grad_ = Random(kHeads, 70, GetParam()).transpose(0, 1);
  }

  Results Run() const {
    const VariableLengthAttention attention({0, 30, 30, 69, 70}, at::kCUDA);
    AttentionStatistics statistics;
    Results results;
    results.out = attention.Forward(q_, k_, v_, &statistics);
    results.gradients =
        attention.Backward(grad_, q_, k_, v_, results.out, statistics);
    return results;
  }

  const at::NoGradGuard no_grad_;
  at::Tensor q_, k_, v_, grad_;
};

TEST_P(FlashAttention3LaunchTest, BothPassesAreLaunchedWithTheSameArguments) {
  const Results by_libtorch = Run();
  const SimulatedFlashAttention3 device;
  const Results ours = Run();
  EXPECT_EQ(SimulatedFlashAttention3::TakeForwards(), 1);
  EXPECT_EQ(SimulatedFlashAttention3::TakeBackwards(), 1);
  EXPECT_TRUE(SameBits(ours.out.cpu(), by_libtorch.out.cpu()));
  EXPECT_TRUE(SameBits(ours.gradients.q.cpu(), by_libtorch.gradients.q.cpu()));
  EXPECT_TRUE(SameBits(ours.gradients.k.cpu(), by_libtorch.gradients.k.cpu()));
  EXPECT_TRUE(SameBits(ours.gradients.v.cpu(), by_libtorch.gradients.v.cpu()));
}

// A run that is deterministic uses one implementation in both passes.
TEST_P(FlashAttention3LaunchTest, BothPassesTakeTheSameImplementation) {
  const SimulatedFlashAttention3 device;
  const DeterministicAlgorithms deterministic;
  Run();
  const int64_t launches = GetParam() == 256 ? 0 : 1;
  EXPECT_EQ(SimulatedFlashAttention3::TakeForwards(), launches);
  EXPECT_EQ(SimulatedFlashAttention3::TakeBackwards(), launches);
}

TEST_P(FlashAttention3LaunchTest, SharedKeysReachTheLaunch) {
  const std::vector<RowRange> keys = {{0, 50}, {0, 60}, {20, 30}};
  const VariableLengthAttention attention({0, 20, 40, 70}, keys, at::kCUDA);
  const at::Tensor by_libtorch = attention.Forward(q_, k_, v_, nullptr);
  const SimulatedFlashAttention3 device;
  const at::Tensor ours = attention.Forward(q_, k_, v_, nullptr);
  EXPECT_EQ(SimulatedFlashAttention3::TakeForwards(), 1);
  EXPECT_TRUE(SameBits(ours.cpu(), by_libtorch.cpu()));
}

// The check before the first use, on a device that is right and on devices with
// faults.
TEST(FlashAttention3CheckTest, FindsEveryFault) {
  const SimulatedFlashAttention3 device;
  const FlashAttention3& kernels = *FlashAttention3OfDevice();
  EXPECT_EQ(FaultOfFlashAttention3(kernels), "");
  EXPECT_EQ(SimulatedFlashAttention3::TakeForwards(), 3) << "one for a width";
  EXPECT_EQ(SimulatedFlashAttention3::TakeBackwards(), 3);
  const auto fault_of = [&](fake::FlashAttention3Fault fault) {
    SimulatedFlashAttention3::SetFault(fault);
    return FaultOfFlashAttention3(kernels);
  };
  using testing::HasSubstr;
  using testing::StartsWith;
  EXPECT_THAT(fault_of(fake::FlashAttention3Fault::kOutput),
              StartsWith("with heads of 64 numbers the output differs from "
                         "LibTorch's by "));
  EXPECT_THAT(fault_of(fake::FlashAttention3Fault::kGradientK),
              HasSubstr("the gradient of the keys differs"));
  EXPECT_THAT(fault_of(fake::FlashAttention3Fault::kNoNumber),
              HasSubstr("the gradient of the queries differs"));
  EXPECT_THAT(fault_of(fake::FlashAttention3Fault::kLaunch),
              HasSubstr("attention's gradient"));
}

TEST(FlashAttention3CheckTest, LeavesOutWhatDeterministicRunsDoNotTake) {
  const SimulatedFlashAttention3 device;
  const DeterministicAlgorithms deterministic;
  EXPECT_EQ(FaultOfFlashAttention3(*FlashAttention3OfDevice()), "");
  EXPECT_EQ(SimulatedFlashAttention3::TakeBackwards(), 2);
}

INSTANTIATE_TEST_SUITE_P(Widths,
                         FlashAttention3LaunchTest,
                         testing::Values(64, 128, 256),
                         [](const auto& info) {
                           return std::to_string(info.param);
                         });

}  // namespace
}  // namespace dapd
