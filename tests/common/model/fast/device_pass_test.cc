// Passes over a model on a GPU, on a host that simulates the device: their
// numbers against the CPU, and what they ask of the device.

#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/fast/chunk_forward.h"
#include "common/model/fast/training_pass.h"
#include "common/model/reference/decoder.h"
#include "tests/fakes/chunk_alone.h"
#include "tests/fakes/flat_gradients.h"
#include "tests/fakes/relative_error.h"
#include "tests/fakes/torch_device/device_model.h"
#include "tests/fakes/torch_device/torch_device.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

constexpr char kFlash[] = "aten::_flash_attention_forward";
constexpr char kFlashBackward[] = "aten::_flash_attention_backward";

// No operation that would build a mask, plan for a shape or wait.
void ExpectPlainAttention(const DeviceWork& work) {
  for (const auto& [name, times] : work.launches) {
    EXPECT_EQ(name.find("scaled_dot_product"), std::string::npos) << name;
    EXPECT_EQ(name.find("triu"), std::string::npos) << name;
  }
  EXPECT_EQ(work.waits, 0);
  EXPECT_EQ(work.pageable_copies, 0);
}

struct Case {
  Case(at::ScalarType dtype, at::Device device)
      : tokens(PackTokens({RandomModelIds(23, 1),
                           RandomModelIds(1, 7),
                           RandomModelIds(70, 3)},
                          device)),
        rows(at::tensor(std::vector<int64_t>{5, 6, 7, 22, 23, 93, 60, 61},
                        at::kLong)
                 .to(device)) {
    at::Generator generator = at::detail::createCPUGenerator(9);
    grad_hidden = at::randn({8, 32}, generator).to(dtype).to(device);
  }
  PackedTokens tokens;
  at::Tensor rows;
  at::Tensor grad_hidden;
};

TEST(DevicePassTest, ATrainingPassIsOneAttentionALayerForAllSequences) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const auto weights = MakeSmallModel(dtype);
    const Adapter adapter = MakeTrainedAdapter(weights->config);
    const Case here(dtype, at::kCPU);
    TrainingPass expected(
        *weights, adapter, here.tokens, here.rows, kUnlimitedActivations);
    const at::Tensor wanted =
        FlatGradients(expected.Backward(here.grad_hidden));

    const auto on_device = OnSimulatedDevice(*weights);
    const Adapter adapter_there = OnSimulatedDevice(adapter);
    const Case there(dtype, SimulatedDevice());
    ResetWorkOfDevice();
    TrainingPass pass(*on_device,
                      adapter_there,
                      there.tokens,
                      there.rows,
                      kUnlimitedActivations);
    const std::vector<LoraLayer> gradients = pass.Backward(there.grad_hidden);
    const DeviceWork work = WorkOfDevice();
    const double value = RelativeError(pass.hidden(), expected.hidden());
    const double gradient =
        ((FlatGradients(gradients) - wanted).norm() / wanted.norm())
            .item<double>();
    std::cout << dtype << ": value " << value << ", gradient " << gradient
              << ", " << work.num_launches() << " launches\n";
    const bool is_wide = dtype == at::kFloat;
    EXPECT_LT(value, is_wide ? 1e-5 : 2e-2);
    EXPECT_LT(gradient, is_wide ? 1e-5 : 5e-2);
    ExpectPlainAttention(work);
    EXPECT_EQ(
        work.Launches(is_wide ? "aten::_efficient_attention_forward" : kFlash),
        2);
    EXPECT_EQ(work.Launches(is_wide ? "aten::_efficient_attention_backward"
                                    : kFlashBackward),
              2);
  }
}

TEST(DevicePassTest, TheReferenceAttendsAtOnceAndHasItsGradient) {
  const auto weights = MakeSmallModel(at::kFloat);
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const Case here(at::kFloat, at::kCPU);
  const at::Tensor expected =
      ForwardHidden(*weights, &adapter, here.tokens, here.rows);
  expected.backward(here.grad_hidden);

  const auto on_device = OnSimulatedDevice(*weights);
  Adapter there = OnSimulatedDevice(adapter);
  for (const at::Tensor& tensor : there.Tensors()) {
    at::Tensor(tensor).requires_grad_(true);
  }
  const Case c(at::kFloat, SimulatedDevice());
  ResetWorkOfDevice();
  const at::Tensor hidden = ForwardHidden(*on_device, &there, c.tokens, c.rows);
  hidden.backward(c.grad_hidden);
  ExpectPlainAttention(WorkOfDevice());
  EXPECT_EQ(WorkOfDevice().Launches("aten::_efficient_attention_forward"), 2);
  EXPECT_LT(RelativeError(hidden.detach(), expected.detach()), 1e-5);
  for (size_t i = 0; i < adapter.Tensors().size(); ++i) {
    EXPECT_LT(
        RelativeError(there.Tensors()[i].grad(), adapter.Tensors()[i].grad()),
        1e-5);
  }
}

TEST(DevicePassTest, TailsBehindChunksAttendAtOnce) {
  const at::NoGradGuard no_grad;
  const auto weights = MakeSmallModel(at::kBFloat16);
  const auto on_device = OnSimulatedDevice(*weights);
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const Adapter there = OnSimulatedDevice(adapter);
  const Case c(at::kBFloat16, SimulatedDevice());
  TrainingPass whole(
      *on_device, there, c.tokens, c.rows, kUnlimitedActivations);
  std::vector<SequencePrefix> prefixes(3);
  std::vector<at::Tensor> past;
  for (int64_t begin = 24; begin < 24 + 48; begin += 16) {
    prefixes[2].push_back(ForwardChunk(*on_device,
                                       &there,
                                       c.tokens.ids.narrow(0, begin, 16),
                                       past,
                                       ChunkKeeps::kLayerInputs));
    past.push_back(prefixes[2].back().keys_values);
  }
  ResetWorkOfDevice();
  TrainingPass pass(*on_device, there, c.tokens, c.rows, 0, prefixes);
  ExpectPlainAttention(WorkOfDevice());
  EXPECT_EQ(WorkOfDevice().Launches(kFlash), 2);
  const double error = RelativeError(pass.hidden(), whole.hidden().cpu());
  std::cout << "value " << error << "\n";
  EXPECT_LT(error, 2e-2);
  EXPECT_EQ(pass.Backward(c.grad_hidden).size(), 2U);
}

// Three chunks of one sequence, one of which is known, and two of another.
struct Chunks {
  std::vector<int32_t> first = RandomModelIds(40, 1);
  std::vector<int32_t> second = RandomModelIds(21, 5);

  std::vector<NextChunk> Next(const at::Tensor& known) const {
    return {
        {.ids = std::span(first).subspan(16, 16),
         .begin = 16,
         .past = {known},
         .is_kept = true},
        {.ids = std::span(second).first(16), .begin = 0},
        {.ids = std::span(first).subspan(32, 8), .begin = 32, .parent = 0},
        {.ids = std::span(second).subspan(16, 5), .begin = 16, .parent = 1}};
  }
};

TEST(DevicePassTest, ChunksThatPassTogetherAreThoseThatPassAlone) {
  const auto weights = MakeSmallModel(at::kBFloat16);
  const auto on_device = OnSimulatedDevice(*weights);
  const Adapter adapter =
      OnSimulatedDevice(MakeTrainedAdapter(weights->config));
  const Chunks c;
  const ChunkStates known = ForwardChunks(
      *on_device,
      &adapter,
      std::vector<NextChunk>{{.ids = std::span(c.first).first(16), .begin = 0}},
      64)[0];
  ResetWorkOfDevice();
  const std::vector<ChunkStates> together =
      ForwardChunks(*on_device, &adapter, c.Next(known.keys_values), 64);
  const DeviceWork work = WorkOfDevice();
  ExpectPlainAttention(work);
  EXPECT_EQ(work.Launches(kFlash), 2);
  EXPECT_EQ(work.to_device, 2);  // ids with positions, offsets
  // As many launches for four chunks as for one, but for the memory of the one
  // that is kept.
  ResetWorkOfDevice();
  const auto chunks = c.Next(known.keys_values);
  ForwardChunks(*on_device, &adapter, {chunks.data(), 1}, 64);
  EXPECT_EQ(WorkOfDevice().num_launches(), work.num_launches());

  // Each alone: the parent is the past then.
  for (size_t i = 0; i < chunks.size(); ++i) {
    const NextChunk alone = ChunkAlone(chunks, together, i);
    const ChunkStates states =
        ForwardChunks(*on_device, &adapter, {&alone, 1}, 64)[0];
    EXPECT_TRUE(at::equal(states.hidden.cpu(), together[i].hidden.cpu())) << i;
    EXPECT_TRUE(
        at::equal(states.keys_values.cpu(), together[i].keys_values.cpu()))
        << i;
  }
  // Against the CPU's.
  const Adapter here = MakeTrainedAdapter(weights->config);
  std::vector<at::Tensor> past;
  for (int64_t begin = 0; begin < 40; begin += 16) {
    const int64_t count = std::min<int64_t>(16, 40 - begin);
    std::vector<int64_t> ids(c.first.begin() + begin,
                             c.first.begin() + begin + count);
    const ChunkStates states =
        ForwardChunk(*weights, &here, at::tensor(ids, at::kLong), past);
    past.push_back(states.keys_values);
    if (begin == 0) continue;
    EXPECT_LT(
        RelativeError(together[begin == 16 ? 0 : 2].hidden, states.hidden),
        2e-2);
  }
}

TEST(DevicePassTest, TheEndOf40960TokensTakesMemoryForItsKeysOnly) {
  const auto weights = OnSimulatedDevice(*MakeSmallModel(at::kBFloat16));
  const at::NoGradGuard no_grad;
  constexpr int64_t kTokens = 40'960;
  constexpr int64_t kOwn = 64;
  const at::Tensor past =
      at::zeros({2, 2, 2, kTokens - kOwn, 16}, weights->embedding.options());
  const std::vector<int32_t> ids = RandomModelIds(kOwn, 1);
  ResetWorkOfDevice();
  ForwardChunks(*weights,
                nullptr,
                std::vector<NextChunk>{
                    {.ids = ids, .begin = kTokens - kOwn, .past = {past}}},
                kOwn);
  // Of a layer; a mask would have twice as much.
  EXPECT_LE(WorkOfDevice().largest_allocation, kTokens * 2 * 16 * 2);
}

}  // namespace
}  // namespace dapd
