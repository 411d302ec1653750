#include "common/model/spec/answer_memory.h"

#include <cstdio>

#include "gtest/gtest.h"

#include "common/gpus/gpu.h"
#include "common/model/spec/decoding_memory.h"
#include "common/model/spec/memory_plan.h"
#include "tests/fakes/model_shapes.h"

namespace dapd {
namespace {

class AnswerMemoryTest : public testing::Test {
 protected:
  AnswerMemoryTest() {
    model_.max_positions = 40'960;
    config_.model.device = DeviceChoice::kCuda;
    config_.model.precision = Precision::kBfloat16;
    config_.rollout.slots = 32;
  }
  DeviceMemory Gpu(double gib) const {
    return GpuOfWorker(config_, model_, static_cast<int64_t>(gib * kGiB));
  }

  Config config_;
  ModelConfig model_ = FourBillion();
};

TEST_F(AnswerMemoryTest, AloneAWorkerTakesWhatDecodingLeaves) {
  const DeviceMemory gpu = Gpu(79.2);
  const int64_t bytes = AnswerMemory(config_, model_, gpu);
  const double share =
      static_cast<double>(bytes) / static_cast<double>(gpu.free);
  std::printf("%.2f GiB of %.2f free (%.3f)\n",
              static_cast<double>(bytes) / kGiB,
              static_cast<double>(gpu.free) / kGiB,
              share);
  EXPECT_GT(share, 0.9);
  EXPECT_LT(share, 0.95);
}

// With these keys and values all items of the plan, and the holes, are the GPU.
TEST_F(AnswerMemoryTest, ThePlanOfAWorkerAgrees) {
  for (const int64_t ranks : {1, 2}) {
    config_.rollout.tensor_parallel = ranks;
    const DeviceMemory gpu = Gpu(79.2);
    double rest = 0;
    for (const MemoryItem& item : PlanMemory(config_, model_).rollout.items) {
      if (item.what != "key-value caches") rest += item.bytes;
    }
    const auto total = static_cast<double>(gpu.total);
    EXPECT_NEAR(static_cast<double>(AnswerMemory(config_, model_, gpu)) + rest +
                    kGpuHoles * total,
                total,
                64)
        << ranks;
  }
}

TEST_F(AnswerMemoryTest, AWorkerThatSharesItsGpuTakesHalf) {
  DeviceMemory gpu = Gpu(79.2);
  config_.run.gpu_processes = 3;
  EXPECT_EQ(AnswerMemory(config_, model_, gpu), ShareOf(gpu, 3).free / 2);
  // Nobody has said that another process is there, but it holds memory.
  config_.run.gpu_processes = 1;
  gpu.free -= int64_t{4} << 30;
  EXPECT_FALSE(IsAlone(gpu));
  EXPECT_EQ(AnswerMemory(config_, model_, gpu), gpu.free / 2);
}

TEST_F(AnswerMemoryTest, ASmallGpuIsHalved) {
  const DeviceMemory gpu = Gpu(11);
  EXPECT_EQ(AnswerMemory(config_, model_, gpu), gpu.free / 2);
}

TEST_F(AnswerMemoryTest, AGivenSizeComesFirst) {
  config_.rollout.kv_memory_mib = 5;
  EXPECT_EQ(AnswerMemory(config_, model_, Gpu(79.2)), int64_t{5} << 20);
}

}  // namespace
}  // namespace dapd
