// Compares passes over a model on a GPU with the CPU: the trainer's pass, whole
// and behind chunks that were computed before, and chunks that pass together.
// Skips itself without a GPU; dapd_torch_device_test runs it on a device that
// the host simulates.
//
// Float32 differs by the order of sums. In bfloat16 GPU and CPU round
// differently: the GPU's numbers may be twice as far from the CPU's float32 as
// the CPU's own bfloat16 is.

#include <cmath>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/fast/chunk_forward.h"
#include "common/model/fast/fast_training_pass.h"
#include "common/model/fast/matrix_product.h"
#include "common/model/reference/decoder.h"
#include "common/model/weights/placement.h"
#include "tests/fakes/chunk_alone.h"
#include "tests/fakes/cuda_precisions.h"
#include "tests/fakes/flat_gradients.h"
#include "tests/fakes/model_on_device.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/same_bits.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {
namespace {

constexpr double kRoundings = 2.0;
constexpr int64_t kChunk = 128;

// The model has Qwen3's heads and values that bfloat16 holds. A pass has more
// rows than its projections have inputs, so that the adapter's columns stand
// beside them (plain_projections.h); `o`, which has more inputs, takes the
// other way.
std::shared_ptr<const ModelWeights> MakeWideModel() {
  auto weights = std::make_shared<ModelWeights>(*MakeRandomModel("qwen3"));
  ModelConfig& config = weights->config;
  config.hidden_size = 256;
  config.intermediate_size = 512;
  config.num_heads = 16;
  config.num_kv_heads = 4;
  config.head_dim = 128;
  config.max_positions = 2048;
  at::Generator generator = at::detail::createCPUGenerator(4);
  for (const WeightSlot& slot : WeightSlots(*weights)) {
    const bool is_norm = slot.name.find("norm") != std::string::npos;
    const double size = 1.0 / std::sqrt(static_cast<double>(slot.shape.back()));
    *slot.target = (at::randn(slot.shape, generator) * size + (is_norm ? 1 : 0))
                       .to(at::kBFloat16)
                       .to(at::kFloat);
  }
  weights->head = weights->embedding;
  return weights;
}

// Holds named results of a pass, in float64 on the CPU.
using Results = std::vector<std::pair<std::string, at::Tensor>>;

at::Tensor OnHost(const at::Tensor& tensor) {
  return tensor.detach().cpu().to(at::kDouble);
}

struct Where {
  const ModelWeights& weights;
  const Adapter& adapter;
  const PackedWeights* packed = nullptr;  // used instead, with the adapter
};

// Runs the training pass over three sequences and reads every row of the last
// answers. With `chunked` the longest sequence begins with chunks.
Results Train(const Where& where, bool chunked) {
  const at::NoGradGuard no_grad;
  const at::Device device = where.weights.device();
  const PackedTokens tokens = PackTokens(
      {RandomModelIds(333, 1), RandomModelIds(1, 7), RandomModelIds(700, 3)},
      device);
  const at::Tensor rows =
      at::cat({at::arange(200, 333), at::arange(700, 1034)}).to(device);
  at::Generator generator = at::detail::createCPUGenerator(9);
  const at::Tensor grad_hidden =
      at::randn({rows.size(0), where.weights.config.hidden_size}, generator)
          .to(at::kBFloat16)
          .to(device, where.weights.dtype());
  std::vector<SequencePrefix> prefixes;
  if (chunked) {
    prefixes.resize(3);
    std::vector<at::Tensor> past;
    for (int64_t begin = 334; begin < 334 + 4 * kChunk; begin += kChunk) {
      prefixes[2].push_back(ForwardChunk(where.weights,
                                         &where.adapter,
                                         tokens.ids.narrow(0, begin, kChunk),
                                         past,
                                         ChunkKeeps::kLayerInputs));
      past.push_back(prefixes[2].back().keys_values);
    }
  }
  FastTrainingPass pass(where.weights,
                        where.adapter,
                        tokens,
                        rows,
                        chunked ? 0 : kUnlimitedActivations,
                        prefixes);
  Results results = {{"value", OnHost(pass.hidden())}};
  results.emplace_back("gradient",
                       OnHost(FlatGradients(pass.Backward(grad_hidden))));
  return results;
}

// Passes chunks of two sequences side by side, behind a known chunk, behind
// each other, and alone, with unused rows behind them.
std::vector<ChunkStates> PassChunks(const Where& where,
                                    const std::vector<NextChunk>& chunks) {
  constexpr int64_t kRows = 4 * kChunk;
  return where.packed == nullptr
             ? ForwardChunks(where.weights, &where.adapter, chunks, kRows)
             : ForwardChunks(where.weights,
                             *where.packed,
                             /*with_adapter=*/true,
                             chunks,
                             kRows);
}

struct Sequences {
  std::vector<int32_t> first = RandomModelIds(3 * kChunk - 30, 1);
  std::vector<int32_t> second = RandomModelIds(kChunk + 5, 5);
};

std::vector<NextChunk> ChunksOf(const Where& where,
                                const Sequences& sequences) {
  const std::span<const int32_t> first(sequences.first);
  const std::span<const int32_t> second(sequences.second);
  const ChunkStates known =
      PassChunks(where, {{.ids = first.first(kChunk), .begin = 0}})[0];
  return {{.ids = first.subspan(kChunk, kChunk),
           .begin = kChunk,
           .past = {known.keys_values},
           .is_kept = true},
          {.ids = second.first(kChunk), .begin = 0},
          {.ids = first.subspan(2 * kChunk), .begin = 2 * kChunk, .parent = 0},
          {.ids = second.subspan(kChunk), .begin = kChunk, .parent = 1}};
}

Results RunChunks(const Where& where) {
  const Sequences sequences;
  Results results;
  for (const ChunkStates& states :
       PassChunks(where, ChunksOf(where, sequences))) {
    const std::string name = "chunk " + std::to_string(results.size() / 2);
    results.emplace_back(name + ", hidden", OnHost(states.hidden));
    results.emplace_back(name + ", keys", OnHost(states.keys_values));
  }
  return results;
}

class CudaPassParityTest : public CudaPrecisionTest {
 protected:
  void SetUp() override {
    CudaPrecisionTest::SetUp();
    if (IsSkipped()) return;
    SetUpCuda(/*deterministic=*/false, at::globalContext());
    on_gpu_ = OnDevice(*exact_, at::kCUDA, GetParam());
    adapter_on_gpu_ = OnDevice(adapter_, at::kCUDA);
  }

  Where Gpu() const { return {*on_gpu_, adapter_on_gpu_}; }
  // Packs the weights as a teacher does.
  Where PackedGpu() {
    taken_ = *on_gpu_;
    packed_ = std::make_unique<PackedWeights>(taken_,
                                              AdapterForm::kColumns,
                                              &adapter_on_gpu_.config,
                                              /*merge=*/nullptr);
    packed_->Apply(&adapter_on_gpu_);
    return {taken_, adapter_on_gpu_, packed_.get()};
  }

  // Compares the results of `run` on the GPU with its results on the CPU.
  template <typename Run>
  void Compare(const Run& run) const {
    Compare(run, Gpu());
  }
  template <typename Run>
  void Compare(const Run& run, const Where& gpu) const {
    const Results expected = run({*exact_, adapter_});
    const Results found = run(gpu);
    const bool is_wide = GetParam() == at::kFloat;
    const Results rounded =
        is_wide ? Results()
                : run({*OnDevice(*exact_, at::kCPU, at::kBFloat16), adapter_});
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto& [name, exact] = expected[i];
      const auto error = [&](const Results& results) {
        return ((results[i].second - exact).norm() / exact.norm())
            .template item<double>();
      };
      const double limit = is_wide ? 1e-4 : kRoundings * error(rounded);
      std::cout << name << ": error " << error(found) << ", at most " << limit
                << "\n";
      EXPECT_LT(error(found), limit) << name;
    }
  }

  const std::shared_ptr<const ModelWeights> exact_ = MakeWideModel();
  const Adapter adapter_ =
      MakeTrainedAdapter(exact_->config, {.rank = 16, .alpha = 32});
  std::shared_ptr<const ModelWeights> on_gpu_;
  Adapter adapter_on_gpu_;
  ModelWeights taken_;
  std::unique_ptr<PackedWeights> packed_;
};

TEST_P(CudaPassParityTest, TrainingPass) {
  Compare([](const Where& where) { return Train(where, /*chunked=*/false); });
}

TEST_P(CudaPassParityTest, TrainingPassBehindChunks) {
  Compare([](const Where& where) { return Train(where, /*chunked=*/true); });
}

TEST_P(CudaPassParityTest, ChunksThatPassTogether) { Compare(RunChunks); }

TEST_P(CudaPassParityTest, ChunksThroughPackedWeights) {
  Compare(RunChunks, PackedGpu());
}

// A teacher needs this to stream views and to share their beginnings.
TEST_P(CudaPassParityTest, AChunksBitsAreItsOwn) {
  const Sequences sequences;
  for (const Where& where : {Gpu(), PackedGpu()}) {
    const std::vector<NextChunk> chunks = ChunksOf(where, sequences);
    const std::vector<ChunkStates> together = PassChunks(where, chunks);
    for (size_t i = 0; i < chunks.size(); ++i) {
      const NextChunk alone = ChunkAlone(chunks, together, i);
      const ChunkStates states = PassChunks(where, {alone})[0];
      EXPECT_TRUE(SameBits(together[i].hidden, states.hidden)) << i;
      EXPECT_TRUE(SameBits(together[i].keys_values, states.keys_values)) << i;
    }
  }
}

// The numbers are ones, so a sum is its length, and a sum that ends early shows
// how many numbers are missing. Lengths are whole steps in many ways, and a few
// numbers more.
TEST_P(CudaPassParityTest, ProductsTakeTheEndOfALongSum) {
  const at::TensorOptions options(at::device(at::kCUDA).dtype(GetParam()));
  for (const int64_t rank : {8, 64, 192}) {
    for (const int64_t in : {576, 1024, 2560}) {
      for (const int64_t steps : {1, 12, 48, 96}) {
        for (const int64_t rest : {1, 2, 7, 33}) {
          const int64_t tokens = 64 * steps + rest;
          const at::Tensor sum =
              MatrixProductIn(at::kFloat,
                              at::ones({tokens, rank}, options).t(),
                              at::ones({tokens, in}, options));
          EXPECT_TRUE((sum.cpu() == tokens).all().item<bool>())
              << tokens << " tokens, rank " << rank << ", " << in;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions,
                         CudaPassParityTest,
                         CudaPrecisions(),
                         CudaPrecisionName);

}  // namespace
}  // namespace dapd
