// Tests passes over a model on a GPU that the host simulates: their numbers
// against the CPU, and the work that they cause on the device.

#include <array>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/fast/chunk_forward.h"
#include "common/model/fast/fast_training_pass.h"
#include "common/model/fast/pass_products.h"
#include "common/model/reference/decoder.h"
#include "common/model/training_pass.h"
#include "tests/fakes/chunk_alone.h"
#include "tests/fakes/device_products_on_host.h"
#include "tests/fakes/flat_gradients.h"
#include "tests/fakes/relative_error.h"
#include "tests/fakes/torch_device/device_model.h"
#include "tests/fakes/torch_device/torch_device.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

constexpr char kFlash[] = "aten::_flash_attention_forward";
constexpr char kFlashBackward[] = "aten::_flash_attention_backward";

// Expects no operation that builds a mask, plans for a shape or waits.
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
    FastTrainingPass expected(
        *weights, adapter, here.tokens, here.rows, kUnlimitedActivations);
    const at::Tensor wanted =
        FlatGradients(expected.Backward(here.grad_hidden));

    const auto on_device = OnSimulatedDevice(*weights);
    const Adapter adapter_there = OnSimulatedDevice(adapter);
    const Case there(dtype, SimulatedDevice());
    ResetWorkOfDevice();
    FastTrainingPass pass(*on_device,
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

TEST(DevicePassTest, AModelThatOnlyLibTorchComputesIsTrainedAndScoredThere) {
  auto weights = std::make_shared<ModelWeights>(*MakeSmallModel(at::kFloat));
  weights->config.score_softcap = 2;
  weights->config.scales_embedding = true;
  weights->config.activation = Activation::kGeluTanh;
  weights->config.norm_scale = NormScale::kOnePlusWeight;
  weights->config.windows = {9, 0};
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const Case here(at::kFloat, at::kCPU);
  const auto expected =
      MakeTrainingPass(*weights, adapter, here.tokens, here.rows, 0);
  const at::Tensor wanted = FlatGradients(expected->Backward(here.grad_hidden));

  const auto on_device = OnSimulatedDevice(*weights);
  const Adapter adapter_there = OnSimulatedDevice(adapter);
  const Case there(at::kFloat, SimulatedDevice());
  const auto pass =
      MakeTrainingPass(*on_device, adapter_there, there.tokens, there.rows, 0);
  EXPECT_LT(RelativeError(pass->hidden(), expected->hidden()), 1e-5);
  const at::Tensor found = FlatGradients(pass->Backward(there.grad_hidden));
  EXPECT_LT(RelativeError(found, wanted), 1e-5);

  // The second of two chunks of a pass, which begins with the first.
  const std::vector<int32_t> ids = RandomModelIds(40, 3);
  const std::span<const int32_t> all(ids);
  const std::vector<NextChunk> chunks = {
      {.ids = all.first(25)},
      {.ids = all.subspan(25), .begin = 25, .parent = 0}};
  const auto scored =
      ForwardChunks(*on_device, &adapter_there, chunks, /*rows=*/64);
  const at::NoGradGuard no_grad;
  const at::Tensor whole = ForwardHidden(*weights,
                                         &adapter,
                                         PackTokens({ids}, at::kCPU),
                                         at::arange(25, 40, at::kLong));
  EXPECT_LT(RelativeError(scored[1].hidden, whole), 1e-5);
}

TEST(DevicePassTest, TailsBehindChunksAttendAtOnce) {
  const at::NoGradGuard no_grad;
  const auto weights = MakeSmallModel(at::kBFloat16);
  const auto on_device = OnSimulatedDevice(*weights);
  const Adapter adapter = MakeTrainedAdapter(weights->config);
  const Adapter there = OnSimulatedDevice(adapter);
  const Case c(at::kBFloat16, SimulatedDevice());
  FastTrainingPass whole(
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
  FastTrainingPass pass(*on_device, there, c.tokens, c.rows, 0, prefixes);
  ExpectPlainAttention(WorkOfDevice());
  EXPECT_EQ(WorkOfDevice().Launches(kFlash), 2);
  const double error = RelativeError(pass.hidden(), whole.hidden().cpu());
  std::cout << "value " << error << "\n";
  EXPECT_LT(error, 2e-2);
  EXPECT_EQ(pass.Backward(c.grad_hidden).size(), 2U);
}

// Has three chunks of one sequence, of which the first is known, and two chunks
// of another sequence.
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
  // Four chunks take as many launches as one, except for the memory of the
  // chunk that is kept.
  ResetWorkOfDevice();
  const auto chunks = c.Next(known.keys_values);
  ForwardChunks(*on_device, &adapter, {chunks.data(), 1}, 64);
  EXPECT_EQ(WorkOfDevice().num_launches(), work.num_launches());

  // Each chunk passes alone; its parent is then the past.
  for (size_t i = 0; i < chunks.size(); ++i) {
    const NextChunk alone = ChunkAlone(chunks, together, i);
    const ChunkStates states =
        ForwardChunks(*on_device, &adapter, {&alone, 1}, 64)[0];
    EXPECT_TRUE(at::equal(states.hidden.cpu(), together[i].hidden.cpu())) << i;
    EXPECT_TRUE(
        at::equal(states.keys_values.cpu(), together[i].keys_values.cpu()))
        << i;
  }
  // The results are also compared with the CPU's results.
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

// With this order neither a copy of a layer's keys nor attention transposes
// them.
TEST(DevicePassTest, AChunksKeysLieTokenByToken) {
  const auto weights = MakeSmallModel(at::kBFloat16);
  const auto on_device = OnSimulatedDevice(*weights);
  const Chunks c;
  const std::vector<NextChunk> first = {
      {.ids = std::span(c.first).first(16), .begin = 0, .is_kept = true},
      {.ids = std::span(c.second).first(16), .begin = 0}};
  for (const ChunkStates& states :
       ForwardChunks(*on_device, /*adapter=*/nullptr, first, 64)) {
    EXPECT_TRUE(states.keys_values[1][0].transpose(0, 1).is_contiguous());
    EXPECT_TRUE(states.keys_values[1][1].transpose(0, 1).is_contiguous());
  }
}

// Holds weights as a teacher on a GPU has them, with an adapter applied.
struct Packed {
  explicit Packed(const LoraConfig& lora)
      : weights(*OnSimulatedDevice(*MakeSmallModel(at::kBFloat16))),
        adapter(OnSimulatedDevice(MakeTrainedAdapter(weights.config, lora))),
        packed(weights, AdapterForm::kColumns, &lora, /*merge=*/nullptr) {
    packed.Apply(&adapter);
  }
  std::vector<ChunkStates> Forward(std::span<const NextChunk> chunks,
                                   int64_t rows,
                                   bool with_adapter = true) const {
    return ForwardChunks(weights, packed, with_adapter, chunks, rows);
  }

  ModelWeights weights;
  Adapter adapter;
  PackedWeights packed;
};

// Returns the rows of a layer's products in their order; before each product
// comes the product of the adapter's columns.
std::vector<int64_t> RowsOfLayers(int64_t rows, bool with_adapter) {
  return std::vector<int64_t>(with_adapter ? 2 * 8 : 2 * 4, rows);
}

TEST(DevicePassTest, APassHasRowsForItsTokensAndTheBitsOfAWholeOne) {
  constexpr int64_t kWhole = 1024;
  fake::SimulatedProducts products(/*row_step=*/256);
  const Packed model({.rank = 8, .alpha = 16});
  const std::vector<int32_t> first = RandomModelIds(240, 1);
  const std::vector<int32_t> second = RandomModelIds(70, 5);
  const std::vector<NextChunk> both = {{.ids = first}, {.ids = second}};
  const std::vector<NextChunk> one = {{.ids = second}};
  for (const bool with_adapter : {true, false}) {
    ResetWorkOfDevice();
    const auto together = model.Forward(both, kWhole, with_adapter);
    EXPECT_EQ(products.TakeRows(), RowsOfLayers(512, with_adapter));
    EXPECT_EQ(WorkOfDevice().Launches("aten::mm"), 0);
    const auto alone = model.Forward(one, kWhole, with_adapter);
    EXPECT_EQ(products.TakeRows(), RowsOfLayers(256, with_adapter));
    EXPECT_TRUE(at::equal(alone[0].hidden.cpu(), together[1].hidden.cpu()));
    EXPECT_EQ(alone[0].hidden.size(0), 70);
  }
  // LibTorch's products compute a whole pass.
  const std::vector<ChunkStates> ours = model.Forward(both, kWhole);
  EXPECT_EQ(products.TakeRows().size(), 16U);
  {
    const fake::SimulatedProducts none(/*row_step=*/0);
    ResetWorkOfDevice();
    const std::vector<ChunkStates> theirs = model.Forward(both, kWhole);
    EXPECT_EQ(WorkOfDevice().Launches("aten::mm"), 16);
    EXPECT_LT(RelativeError(ours[0].hidden, theirs[0].hidden.cpu()), 2e-2);
  }
}

TEST(DevicePassTest, APassIsWholeWhereTheAlgorithmTakesNoFewerRows) {
  fake::SimulatedProducts products(/*row_step=*/1000);
  const Packed model({.rank = 8, .alpha = 16});
  const std::vector<int32_t> ids = RandomModelIds(70, 5);
  model.Forward(std::vector<NextChunk>{{.ids = ids}}, 512);
  EXPECT_EQ(products.TakeRows(), RowsOfLayers(512, true));
}

TEST(DevicePassTest, LibTorchMultipliesWhereRowsAreNotAligned) {
  const fake::SimulatedProducts products(/*row_step=*/256);
  const auto like = at::empty({0}, at::kBFloat16).to(SimulatedDevice());
  const auto linears = [&](int64_t in) {
    return std::array<PackedLinear, 4>{
        PackedLinear{.weight = at::empty({64, 64}, like.options()), .in = 64},
        PackedLinear{.weight = at::empty({64, 64}, like.options()), .in = 64},
        PackedLinear{.weight = at::empty({64, 64}, like.options()), .in = 64},
        PackedLinear{.weight = at::empty({64, in}, like.options()), .in = in}};
  };
  EXPECT_EQ(RowsOfPass(linears(64), false, 70, 512).rows, 256);
  EXPECT_EQ(RowsOfPass(linears(64), false, 70, 512).whole, 512);
  EXPECT_EQ(RowsOfPass(linears(60), false, 70, 512).rows, 512);
  EXPECT_EQ(RowsOfPass(linears(60), false, 70, 512).whole, 0);
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
  // The allocation is for one layer; a mask would take twice as much.
  EXPECT_LE(WorkOfDevice().largest_allocation, kTokens * 2 * 16 * 2);
}

}  // namespace
}  // namespace dapd
