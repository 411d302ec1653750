// Tests when NCCL takes its memory, on a host that simulates the device's
// memory (tests/fakes/torch_device) and NCCL (tests/fakes/nccl_ranks.h).

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "common/collective/device_group.h"
#include "tests/fakes/nccl_ranks.h"
#include "tests/fakes/torch_device/device_memory.h"
#include "tests/fakes/torch_device/device_model.h"
#include "tests/fakes/torch_device/torch_device.h"

namespace dapd {
namespace {

constexpr NcclApi kNcclOnHost = {.make_id = &DapdNcclUniqueId,
                                 .init = &DapdNcclInit,
                                 .sum = &DapdNcclSum,
                                 .all_gather = &DapdNcclAllGather,
                                 .broadcast = &DapdNcclBroadcast,
                                 .abort = &DapdNcclAbort,
                                 .destroy = &DapdNcclDestroy};
constexpr int64_t kBytesOfConnection = 64 << 20;
constexpr int64_t kDeviceBytes = int64_t{1} << 30;

class DeviceGroupMemoryTest : public testing::Test {
 protected:
  DeviceGroupMemoryTest() {
    LimitDeviceMemory(WorkOfDevice().live_bytes + kDeviceBytes);
    OnNcclMemory([this] {
      try {
        taken_.push_back(DeviceMemory().allocate(kBytesOfConnection));
        return true;
      } catch (const c10::OutOfMemoryError&) {
        return false;
      }
    });
  }
  ~DeviceGroupMemoryTest() override {
    OnNcclMemory(nullptr);
    LimitDeviceMemory(0);
  }

  const std::unique_ptr<Collective> alone_ = MakeSingleRank();
  std::vector<c10::DataPtr> taken_;  // by NCCL
};

at::Tensor Floats(int64_t count) {
  return at::zeros({count}, at::TensorOptions().device(SimulatedDevice()));
}

// Afterwards the trainer plans with all memory that is free.
TEST_F(DeviceGroupMemoryTest, NcclTakesItsMemoryWhileTheRanksJoin) {
  const int64_t before = WorkOfDevice().live_bytes;
  auto group =
      JoinNccl(*alone_, SimulatedDevice(), /*timeout_seconds=*/5, kNcclOnHost);
  ASSERT_TRUE(group.ok()) << group.status();
  const int64_t connections = WorkOfDevice().live_bytes - before;
  std::cout << "NCCL took " << connections << " bytes while the ranks joined\n";
  EXPECT_EQ(connections,
            static_cast<int64_t>(taken_.size()) * kBytesOfConnection);

  std::vector<at::Tensor> values = {Floats(1), Floats(1 << 22)};
  // Room for the results of gathers, but for no connection.
  const at::Tensor planned =
      at::empty({kDeviceBytes - (WorkOfDevice().live_bytes - before) -
                 kBytesOfConnection / 2},
                at::TensorOptions().dtype(at::kByte).device(SimulatedDevice()));
  for (at::Tensor& each : values) {
    EXPECT_EQ((*group)->Sum(each), absl::OkStatus());
    EXPECT_EQ((*group)->AllGather({&each, 1}).status(), absl::OkStatus());
    EXPECT_EQ((*group)->Broadcast({&each, 1}), absl::OkStatus());
  }
}

TEST_F(DeviceGroupMemoryTest, ADeviceWithoutThatMemoryIsSaidWhileTheyJoin) {
  const at::Tensor all_but_little =
      at::empty({kDeviceBytes - kBytesOfConnection / 2},
                at::TensorOptions().dtype(at::kByte).device(SimulatedDevice()));
  const absl::Status status =
      JoinNccl(*alone_, SimulatedDevice(), /*timeout_seconds=*/5, kNcclOnHost)
          .status();
  EXPECT_FALSE(status.ok());
  std::cout << status << "\n";
}

}  // namespace
}  // namespace dapd
