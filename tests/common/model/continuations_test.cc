#include "common/model/continuations.h"

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/reference/token_logprobs.h"
#include "tests/fakes/random_model.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;

using Sequences = std::vector<std::vector<int32_t>>;

ContinuationTree TreeOf(const Sequences& sequences) {
  return ContinuationTree::Make(sequences).value();
}

TEST(ContinuationTreeTest, TokensThatSequencesShareAreOneNode) {
  const ContinuationTree tree =
      TreeOf({{5, 6, 9}, {1, 2, 3}, {1, 2, 4, 4}, {5, 7}, {1, 2, 4, 5}});
  Sequences ids;
  std::vector<int64_t> parents;
  std::vector<int64_t> begins;
  for (const ContinuationTree::Node& node : tree.nodes()) {
    ids.push_back(node.ids);
    parents.push_back(node.parent);
    begins.push_back(node.begin);
  }
  EXPECT_EQ(ids, (Sequences{{1, 2}, {3}, {4}, {4}, {5}, {5}, {6, 9}, {7}}));
  EXPECT_THAT(parents, ElementsAre(-1, 0, 0, 2, 2, -1, 5, 5));
  EXPECT_THAT(begins, ElementsAre(0, 2, 2, 3, 3, 0, 1, 1));
  EXPECT_THAT(tree.leaves(), ElementsAre(1, 3, 4, 6, 7));
  EXPECT_EQ(tree.longest(), 4);
}

TEST(ContinuationTreeTest, NoSequenceBeginsAnother) {
  EXPECT_TRUE(ContinuationTree::Make({{1, 2}, {1, 3}}).ok());
  for (const Sequences& sequences : {Sequences{},
                                     Sequences{{1}, {}},
                                     Sequences{{1, 2}, {1, 2}},
                                     Sequences{{1, 2, 3}, {4}, {1, 2}}}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(ContinuationTree::Make(sequences).status()));
  }
}

// Passes the whole text of every continuation.
double OneByOne(const ModelWeights& weights,
                const Adapter* adapter,
                const std::vector<int32_t>& before,
                const Sequences& sequences) {
  double sum = 0.0;
  for (const std::vector<int32_t>& sequence : sequences) {
    std::vector<int32_t> ids = before;
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    const at::Tensor logprobs = TokenLogprobs(weights, adapter, ids);
    sum += std::exp(logprobs
                        .narrow(0,
                                static_cast<int64_t>(before.size()) - 1,
                                static_cast<int64_t>(sequence.size()))
                        .to(at::kDouble)
                        .sum()
                        .item<double>());
  }
  return sum;
}

TEST(ContinuationProbabilitiesTest, TheyAreThoseOfWholeTexts) {
  const Sequences first = {{5, 6, 9}, {1, 2, 3}, {1, 2, 4, 4}, {5, 7}, {8}};
  const Sequences second = {{5, 6}, {1}, {40, 41, 42, 43, 44}};
  const ContinuationTree a = TreeOf(first);
  const ContinuationTree b = TreeOf(second);
  const std::vector<int32_t> ids = RandomModelIds(150, 3);
  for (const std::string family : {"qwen3", "llama", kUnusualFamily}) {
    const auto weights = MakeRandomModel(family);
    Adapter adapter =
        MakeFreshAdapter(weights->config, {.rank = 4}, 3, at::kCPU);
    for (at::Tensor& tensor : adapter.Tensors()) tensor.add_(0.05);
    // Several places share a pass, or each text has its own.
    for (const int64_t max_keys :
         {kContinuationKeys, int64_t{300}, int64_t{1}}) {
      const std::vector<ContinuationPlace> places = {
          {1, &a}, {100, &b}, {128, &a}, {150, &b}};
      const std::vector<double> found =
          ContinuationProbabilities(*weights, &adapter, ids, places, max_keys);
      ASSERT_EQ(found.size(), places.size());
      double error = 0.0;
      for (size_t i = 0; i < places.size(); ++i) {
        const double expected =
            OneByOne(*weights,
                     &adapter,
                     {ids.begin(), ids.begin() + places[i].tokens},
                     places[i].tree == &a ? first : second);
        error = std::max(error, std::abs(found[i] / expected - 1));
      }
      std::cout << family << " with " << max_keys << " keys: relative error "
                << error << "\n";
      EXPECT_LT(error, 1e-4);
    }
  }
}

TEST(ContinuationProbabilitiesTest, AllTokensTogetherAreCertain) {
  Sequences all;
  for (int32_t id = 0; id < 97; ++id) all.push_back({id});
  const ContinuationTree tree = TreeOf(all);
  const std::vector<int32_t> ids = RandomModelIds(9, 3);
  const std::vector<ContinuationPlace> places = {{4, &tree}, {9, &tree}};
  for (const double probability : ContinuationProbabilities(
           *MakeRandomModel("qwen3"), nullptr, ids, places)) {
    EXPECT_NEAR(probability, 1.0, 1e-5);
  }
}

TEST(ContinuationProbabilitiesTest, APlaceLiesInItsSequence) {
  const ContinuationTree tree = TreeOf({{5}});
  const auto weights = MakeRandomModel("qwen3");
  const std::vector<int32_t> ids = RandomModelIds(9, 3);
  for (const int64_t tokens : {0, 10}) {
    const std::vector<ContinuationPlace> places = {{tokens, &tree}};
    EXPECT_THROW(ContinuationProbabilities(*weights, nullptr, ids, places),
                 c10::Error);
  }
  EXPECT_TRUE(
      ContinuationProbabilities(*weights, nullptr, ids, /*places=*/{}).empty());
}

}  // namespace
}  // namespace dapd
