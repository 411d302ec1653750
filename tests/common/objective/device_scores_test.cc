// Tests scores that arrive at a trainer on a GPU that the host simulates.
#include <map>
#include <string>

#include "gtest/gtest.h"

#include "common/objective/upload_scores.h"
#include "common/tensor/torch_bridge.h"
#include "tests/fakes/torch_device/torch_device.h"

namespace dapd {
namespace {

const at::Device kDevice(at::kCUDA, 0);

std::map<std::string, HostTensor> TopK() {
  return {{"ids", *FromTorch(at::arange(64, at::kInt).view({16, 4}))},
          {"logprobs", *FromTorch(at::arange(64, at::kFloat).view({16, 4}))}};
}

TEST(UploadScoresTest, TheHostWaitsForNoCopy) {
  ResetWorkOfDevice();
  const TeacherScores scores = UploadScores(TopK(), kDevice, nullptr);
  EXPECT_EQ(WorkOfDevice().to_device, 2);
  EXPECT_EQ(WorkOfDevice().waits, 0);
  EXPECT_EQ(WorkOfDevice().pageable_copies, 0);
  EXPECT_TRUE(
      at::equal(scores.top_ids.cpu(), at::arange(64, at::kLong).view({16, 4})));
  EXPECT_TRUE(at::equal(scores.top_logprobs.cpu(),
                        at::arange(64, at::kFloat).view({16, 4})));
}

TEST(UploadScoresTest, WhatIsOnlyKeptMakesRoom) {
  at::Tensor kept = at::empty({1 << 20}, at::TensorOptions(kDevice));
  LimitDeviceMemory(WorkOfDevice().live_bytes + 100);
  int asked = 0;
  const MakeRoom make_room = [&] {
    ++asked;
    const bool had = kept.defined();
    kept = at::Tensor();
    return had;
  };
  const TeacherScores scores = UploadScores(TopK(), kDevice, make_room);
  LimitDeviceMemory(0);
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(scores.top_logprobs.defined());
}

TEST(UploadScoresTest, WithoutRoomItIsTheErrorOfAFullDevice) {
  LimitDeviceMemory(WorkOfDevice().live_bytes + 1);
  EXPECT_THROW(UploadScores(TopK(), kDevice, nullptr), c10::OutOfMemoryError);
  EXPECT_THROW(UploadScores(TopK(), kDevice, [] { return false; }),
               c10::OutOfMemoryError);
  LimitDeviceMemory(0);
}

}  // namespace
}  // namespace dapd
