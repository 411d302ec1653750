// Tests which launches of a decode step begin before the launch in front of
// them has ended. The simulated device checks, in this file and in every other
// test of these kernels, that such a kernel waits before it touches memory.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/decoder_layer.h"
#include "common/kernels/cuda/sampling.h"
#include "common/kernels/cuda/skinny_product.h"
#include "tests/fakes/cuda/kernel_inputs.h"

namespace dapd {
namespace {

using fake::DeviceBuffer;
using fake::Elements;
using fake::Launches;

// Counts how the kernels of a launcher begin.
class EarlyLaunchTest : public testing::Test {
 protected:
  ~EarlyLaunchTest() override { fake::SetTraits({}); }

  Launches Of(const std::function<int()>& launcher) {
    fake::TakeLaunches();
    EXPECT_EQ(launcher(), 0);
    EXPECT_EQ(fake::TakeReport(), "");
    return fake::TakeLaunches();
  }

  static constexpr CudaNumber kNumber = CudaNumber::kFloat32;
  static constexpr int64_t kSize = 8;
  // The row is unused.
  DeviceBuffer<int32_t> slots_{"slot_of_row", std::vector<int32_t>{-1}};
  const CudaRows rows_{1, slots_.data(), nullptr};
  DeviceBuffer<float> x_{"x", std::vector<float>(2 * kSize, 1.0F)};
  DeviceBuffer<float> parts_{"parts", std::vector<float>(2 * kSize, 1.0F)};
  DeviceBuffer<float> out_{"out", Elements(kSize)};
  DeviceBuffer<BFloat16> w_{"w", std::vector<BFloat16>(kSize* kSize)};

  std::map<std::string, std::function<int()>> Launchers() {
    const ResidualNormArgs norm{.num_rows = 1,
                                .x = x_.data(),
                                .weight = x_.data() + kSize,
                                .out = out_.data(),
                                .hidden = kSize,
                                .out_stride = kSize};
    ResidualNormArgs behind_a_gather = norm;
    behind_a_gather.parts = parts_.data();
    behind_a_gather.num_parts = 2;
    const EmbeddingArgs embedding{.rows = rows_, .hidden = kSize};
    const QkvArgs qkv{
        .rows = rows_, .heads = 2, .kv_heads = 1, .head_dim = kSize};
    const SwiGluArgs swiglu{.num_rows = 1,
                            .gate_up = x_.data(),
                            .out = out_.data(),
                            .intermediate = kSize,
                            .out_stride = kSize};
    const SampleArgs sample{.num_rows = 1,
                            .slot_of_row = slots_.data(),
                            .vocab = kSize,
                            .num_tokens = kSize};
    SampleArgs gathered = sample;
    gathered.behind_a_gather = true;
    w_.MarkConstant();
    slots_.MarkConstant();
    x_.MarkConstant(kSize, kSize);  // the norm's weights
    const CudaProduct product{.rows = 1,
                              .inner = kSize,
                              .cols = kSize,
                              .x = w_.data(),
                              .x_stride = kSize,
                              .w = w_.data(),
                              .w_stride = kSize,
                              .y = out_.data(),
                              .y_stride = kSize,
                              .number = CudaNumber::kBFloat16,
                              .float_result = true};
    std::map<std::string, std::function<int()>> launchers{
        {"embedding",
         [=] { return DapdCudaEmbedding(&embedding, kNumber, nullptr); }},
        {"norm", [=] { return DapdCudaResidualNorm(&norm, kNumber, nullptr); }},
        {"norm behind a gather",
         [=] {
           return DapdCudaResidualNorm(&behind_a_gather, kNumber, nullptr);
         }},
        {"qkv", [=] { return DapdCudaQkv(&qkv, kNumber, nullptr); }},
        {"product", [=] { return DapdCudaSkinnyProduct(&product, nullptr); }},
        {"swiglu", [=] { return DapdCudaSwiGlu(&swiglu, kNumber, nullptr); }},
        {"sampling", [=] { return DapdCudaSample(&sample, nullptr); }},
        {"sampling behind a gather",
         [=] { return DapdCudaSample(&gathered, nullptr); }}};
    for (const int64_t group : {2, 4, 8}) {
      const DecodeAttentionArgs attention{.rows = rows_,
                                          .heads = group,
                                          .kv_heads = 1,
                                          .head_dim = kSize,
                                          .max_tokens = 256};
      for (const CudaNumber number :
           {CudaNumber::kFloat32, CudaNumber::kBFloat16}) {
        const std::string name =
            number == CudaNumber::kFloat32 ? "float32" : "bfloat16";
        launchers[name + " attention of " + std::to_string(group)] = [=] {
          return DapdCudaDecodeAttention(&attention, number, nullptr);
        };
      }
    }
    return launchers;
  }
};

TEST_F(EarlyLaunchTest, AllOfAStepButItsFirstAndWhatFollowsAGather) {
  const std::map<std::string, Launches> exceptions{
      {"embedding", {.in_turn = 1}},
      {"norm behind a gather", {.in_turn = 1}},
      {"sampling", {.early = 2}},
      {"sampling behind a gather", {.in_turn = 1, .early = 1}}};
  std::set<int> carveouts;
  for (const auto& [name, launcher] : Launchers()) {
    const auto found = exceptions.find(name);
    const Launches expected =
        found == exceptions.end() ? Launches{.early = 1} : found->second;
    const Launches launches = Of(launcher);
    EXPECT_EQ(launches.early, expected.early) << name;
    EXPECT_EQ(launches.in_turn, expected.in_turn) << name;
    carveouts.insert(launches.carveouts.begin(), launches.carveouts.end());
  }
  // If carveouts differed, a kernel would wait for an empty multiprocessor.
  EXPECT_EQ(carveouts, std::set<int>{71});
}

TEST_F(EarlyLaunchTest, NoneWhereTheDeviceHasNoSuchLaunches) {
  fake::SetTraits({.major = 8});
  for (const auto& [name, launcher] : Launchers()) {
    const Launches launches = Of(launcher);
    EXPECT_EQ(launches.early, 0) << name;
    EXPECT_GE(launches.in_turn, 1) << name;
  }
}

}  // namespace
}  // namespace dapd
