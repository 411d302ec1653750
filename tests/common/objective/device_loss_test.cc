// Tests the head loss on a GPU that the host simulates: the path with the loss
// kernel, its numbers, its products and its memory.

#include <iostream>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

#include "common/objective/chunk_tokens.h"
#include "tests/common/objective/head_loss_fixture.h"
#include "tests/fakes/token_passes_on_host.h"
#include "tests/fakes/torch_device/torch_device.h"

namespace dapd {
namespace {

const at::Device kDeviceOfLoss(at::kCUDA, 0);

class DeviceLossTest : public HeadLossFixture {};

TEST_F(DeviceLossTest, TheKernelsPathHasOneProductPerHeadAndChunk) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t heads : {1, 3}) {
      const Inputs in = (heads == 1 ? Inputs() : WithThreeModels()).As(dtype);
      const Inputs there = in.As(kDeviceOfLoss);
      fake::SimulatedTokenPasses passes(/*at_a_time=*/2);
      ResetWorkOfDevice();
      const HeadLoss loss = there.Run(InChunks(4));
      const DeviceWork work = WorkOfDevice();
      EXPECT_EQ(passes.TakeChunks(), (std::vector<int64_t>{4, 4, 3}));
      EXPECT_EQ(work.Launches("aten::mm"), 3 * (heads + 1));
      EXPECT_EQ(work.waits, 1);
      HeadLoss on_host = loss;
      for (at::Tensor& gradient : on_host.grad_hidden) {
        EXPECT_TRUE(gradient.is_cuda());
        gradient = gradient.cpu();
      }
      const Errors errors(on_host, Slow(in));
      std::cout << heads << " heads: values " << errors.value << ", gradients "
                << errors.gradient << "\n";
      EXPECT_LT(errors.value, 1e-5);
      EXPECT_LT(errors.gradient, dtype == at::kFloat ? 1e-5 : 1e-2);
    }
  }
}

TEST_F(DeviceLossTest, NarrowLogitsGiveWhatRoundedLogitsGiveOnTheHost) {
  for (const Inputs& inputs : {Inputs(), WithThreeModels()}) {
    for (const Target& target : {Target{TeacherPass{}}, Target{OneHot{}}}) {
      Inputs in = WithRoundedLogits(inputs);
      in.target = target;
      in.divergence.clip = kNoClip;
      Inputs there = in.As(kDeviceOfLoss);
      there.scored = in.scored.to(kDeviceOfLoss);
      fake::SimulatedTokenPasses passes(/*at_a_time=*/2);
      // Five narrow rows take the memory of two and a half.
      HeadLoss loss = there.Run(InChunks(2));
      for (at::Tensor& gradient : loss.grad_hidden) gradient = gradient.cpu();
      if (std::holds_alternative<TeacherPass>(target)) {
        EXPECT_EQ(passes.TakeChunks(), (std::vector<int64_t>{4, 4, 3}));
      }
      const HeadLoss expected = in.Run(InChunks(4));
      for (size_t k = 0; k < expected.sums.size(); ++k) {
        EXPECT_EQ(loss.sums[k].clipped, expected.sums[k].clipped);
      }
      const Errors errors(loss, Slow(in));
      std::cout << "values " << errors.value << ", gradients "
                << errors.gradient << "\n";
      EXPECT_LT(errors.value, 1e-5);
      EXPECT_LT(errors.gradient, 1e-2);
    }
  }
}

// A float32 teacher of a bfloat16 student keeps float32 logits beside the
// student's narrow ones.
TEST_F(DeviceLossTest, RowsOfBothPrecisionsShareAChunk) {
  Inputs in = WithRoundedLogits(WithThreeModels());
  Inputs there = in.As(kDeviceOfLoss);
  const Inputs wide = WithRoundedLogits(WithThreeModels()).As(at::kFloat);
  in.SetHead(1, *wide.heads[1]);
  in.teachers[1].hidden = wide.teachers[1].hidden;
  there.SetHead(1, {wide.heads[1]->weight.to(kDeviceOfLoss)});
  there.teachers[1].hidden = wide.teachers[1].hidden.to(kDeviceOfLoss);
  fake::SimulatedTokenPasses passes(/*at_a_time=*/1);
  HeadLoss loss = there.Run(InChunks(3));
  const HeadLoss expected = in.Run(InChunks(3));
  for (size_t k = 0; k < expected.sums.size(); ++k) {
    EXPECT_EQ(loss.sums[k].clipped, expected.sums[k].clipped);
  }
}

TEST_F(DeviceLossTest, WithoutTheKernelTensorOperationsTakeSeveralHeadsToo) {
  const Inputs in = WithThreeModels();
  HeadLoss loss = in.As(kDeviceOfLoss).Run(InChunks(4));
  for (at::Tensor& gradient : loss.grad_hidden) gradient = gradient.cpu();
  const Errors errors(loss, Slow(in));
  EXPECT_LT(errors.value, 1e-5);
  EXPECT_LT(errors.gradient, 1e-5);
}

// A plan of chunks may count on these bytes of a token (chunk_tokens.h).
TEST_F(DeviceLossTest, ACallTakesNoMoreMemoryThanItsPlanSays) {
  for (const auto& [heads, number] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 4}, {3, 4}, {1, 2}}) {
    const Inputs wide = heads == 1 ? Inputs() : WithThreeModels();
    const Inputs in =
        (number == 4 ? wide : WithRoundedLogits(wide)).As(kDeviceOfLoss);
    const int64_t vocabulary = in.num_common();
    const HeadLossShape shape{
        .vocabulary = vocabulary,
        .hidden = kHidden,
        .number_bytes = number,
        .source_bytes =
            (heads == 1 ? 5 * kHidden : 3 * kHidden + 12 + 5) * number,
        .rows = 5,
        .narrow_rows = number == 4 ? 0 : 5,
        .gradients = 2};
    const int64_t sums = kTokens * 4 * int64_t{32};
    const int64_t results = kTokens * 2 * kHidden * number;
    fake::SimulatedTokenPasses passes(/*at_a_time=*/1);
    ResetWorkOfDevice();
    const int64_t before = WorkOfDevice().live_bytes;
    in.Run({.temperature = kTemperature});
    const int64_t peak = WorkOfDevice().peak_bytes - before;
    EXPECT_EQ(passes.TakeChunks(), std::vector<int64_t>{kTokens});
    const int64_t planned = kTokens * ChunkBytesOfToken(shape) + sums + results;
    std::cout << heads << " heads, logits of " << number << " bytes: " << peak
              << " bytes of " << planned << " that are planned\n";
    EXPECT_LE(peak, planned);
    EXPECT_GE(peak, kTokens * 5 * vocabulary * number);
  }
}

}  // namespace
}  // namespace dapd
