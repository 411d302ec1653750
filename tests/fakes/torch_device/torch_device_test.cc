#include "tests/fakes/torch_device/torch_device.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

const at::Device kDevice(at::kCUDA, 0);

TEST(TorchDeviceTest, OperationsGiveWhatTheCpuGives) {
  const at::NoGradGuard no_grad;
  const at::Tensor host = at::rand({3, 4});
  const auto compute = [](const at::Tensor& x) {
    at::Tensor y = at::matmul(x, x.t()).add_(1.0);
    y = at::cat({y, y}, 1).narrow(1, 1, 3).contiguous();
    return at::softmax(y.mul_(2.0), -1)
        .index_select(0, at::arange(2, x.options().dtype(at::kLong)));
  };
  EXPECT_TRUE(at::equal(compute(host.to(kDevice)).cpu(), compute(host)));
}

TEST(TorchDeviceTest, GradientsAreTheCpusToo) {
  at::Tensor x = at::rand({3, 4}).to(kDevice).requires_grad_(true);
  (x * x).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad().cpu(), 2 * x.detach().cpu()));
}

TEST(TorchDeviceTest, LaunchesAndCopiesAreCounted) {
  const at::NoGradGuard no_grad;
  const at::Tensor host = at::rand({4}).pin_memory();
  ResetWorkOfDevice();
  const at::Tensor x = host.to(kDevice, at::kFloat, /*non_blocking=*/true);
  EXPECT_EQ(WorkOfDevice().to_device, 1);
  EXPECT_EQ(WorkOfDevice().waits, 0);
  EXPECT_EQ(WorkOfDevice().pageable_copies, 0);
  const at::Tensor view = x.view({2, 2}).t();
  EXPECT_EQ(WorkOfDevice().num_launches(), 0);
  const at::Tensor sum = view + view;
  EXPECT_EQ(WorkOfDevice().Launches("aten::add"), 1);
  EXPECT_EQ(WorkOfDevice().num_launches(), 1);
  EXPECT_GT(sum.sum().item<float>(), 0.0F);
  EXPECT_EQ(WorkOfDevice().waits, 1);
  at::rand({4}).to(kDevice);
  EXPECT_EQ(WorkOfDevice().pageable_copies, 1);
  EXPECT_EQ(WorkOfDevice().waits, 2);
}

TEST(TorchDeviceTest, ItsMemoryEnds) {
  const int64_t live = WorkOfDevice().live_bytes;
  LimitDeviceMemory(live + 1000);
  EXPECT_THROW(at::empty({2000}, at::TensorOptions(kDevice)),
               c10::OutOfMemoryError);
  LimitDeviceMemory(0);
  EXPECT_EQ(WorkOfDevice().live_bytes, live);
}

}  // namespace
}  // namespace dapd
