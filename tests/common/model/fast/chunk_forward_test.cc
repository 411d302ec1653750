#include "common/model/fast/chunk_forward.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/reference/decoder.h"
#include "tests/fakes/random_model.h"

namespace dapd {
namespace {

// Returns hidden states [T, hidden] of `ids` in chunks that end at `ends`.
at::Tensor InChunks(const ModelWeights& weights,
                    const Adapter* adapter,
                    const at::Tensor& ids,
                    const std::vector<int64_t>& ends) {
  std::vector<at::Tensor> past;
  std::vector<at::Tensor> hidden;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const ChunkStates states =
        ForwardChunk(weights, adapter, ids.narrow(0, begin, end - begin), past);
    past.push_back(states.keys_values);
    hidden.push_back(states.hidden);
    begin = end;
  }
  return at::cat(hidden, 0);
}

at::Tensor AtOnce(const ModelWeights& weights,
                  const Adapter* adapter,
                  const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  return ForwardHidden(weights,
                       adapter,
                       {ids, {0, ids.size(0)}},
                       at::arange(ids.size(0), at::kLong));
}

at::Tensor RandomIds(int64_t tokens) {
  return at::randint(
      97, {tokens}, at::detail::createCPUGenerator(5), at::kLong);
}

float MaxError(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<float>();
}

TEST(ChunkForwardTest, ChunksGiveWhatOnePassGives) {
  const at::Tensor ids = RandomIds(150);
  for (const std::string family : {"qwen3", "qwen2", "llama", kUnusualFamily}) {
    const auto weights = MakeRandomModel(family);
    LoraConfig lora;
    lora.rank = 4;
    Adapter adapter = MakeFreshAdapter(weights->config, lora, 3, at::kCPU);
    for (at::Tensor& tensor : adapter.Tensors()) tensor.add_(0.05);
    for (const Adapter* served : {static_cast<const Adapter*>(nullptr),
                                  static_cast<const Adapter*>(&adapter)}) {
      const at::Tensor expected = AtOnce(*weights, served, ids);
      for (const std::vector<int64_t>& ends :
           {std::vector<int64_t>{150},
            std::vector<int64_t>{64, 128, 150},
            std::vector<int64_t>{16, 17, 149, 150}}) {
        const float error =
            MaxError(InChunks(*weights, served, ids, ends), expected);
        std::cout << family << (served == nullptr ? " base" : " adapter")
                  << " in " << ends.size() << " chunks: error " << error
                  << "\n";
        EXPECT_LT(error, 2e-5);
      }
    }
  }
}

TEST(ChunkForwardTest, BfloatChunksStayWithinItsRounding) {
  const at::Tensor ids = RandomIds(150);
  const auto weights = MakeRandomModel("qwen3", 1, at::kBFloat16);
  const at::Tensor expected = AtOnce(*weights, nullptr, ids).to(at::kFloat);
  const at::Tensor chunks =
      InChunks(*weights, nullptr, ids, {64, 128, 150}).to(at::kFloat);
  const float error =
      MaxError(chunks, expected) / expected.abs().max().item<float>();
  std::cout << "bfloat16: relative error " << error << "\n";
  EXPECT_LT(error, 0.05);
}

TEST(ChunkForwardTest, APrefixHasTheSameBitsWhateverFollows) {
  const auto weights = MakeRandomModel("qwen3");
  const at::Tensor ids = RandomIds(150);
  at::Tensor other = ids.clone();
  other.narrow(0, 128, 22).fill_(7);
  const at::Tensor a = InChunks(*weights, nullptr, ids, {64, 128, 150});
  const at::Tensor b = InChunks(*weights, nullptr, other, {64, 128, 141});
  EXPECT_TRUE(at::equal(a.narrow(0, 0, 128), b.narrow(0, 0, 128)));
}

TEST(ChunkForwardTest, ItsBytesAreThoseOfItsTensors) {
  const auto weights = MakeRandomModel("llama", 1, at::kBFloat16);
  const ChunkStates states = ForwardChunk(*weights, nullptr, RandomIds(16), {});
  EXPECT_EQ(ChunkBytes(*weights, 16),
            static_cast<int64_t>(states.keys_values.nbytes() +
                                 states.hidden.nbytes()));
}

}  // namespace
}  // namespace dapd
