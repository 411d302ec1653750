#include "common/objective/target_sources.h"

#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

constexpr int64_t kSourceTokens = 6;

class TargetSourcesTest : public testing::Test {
 protected:
  // Returns the sources of two students and these teachers.
  TargetSources SourcesOf(const std::vector<TeacherScores>& teachers) const {
    std::vector<HeadTerm> terms;
    for (const TeacherScores& teacher : teachers) {
      terms.push_back({.target = &target_, .passes = {&teacher}});
    }
    return {head_,
            std::vector<HeadStudent>{{.hidden = At(8)}, {.hidden = At(8)}},
            terms,
            /*vocabulary=*/20};
  }

  static at::Tensor At(int64_t width) {
    return at::ones({kSourceTokens, width});
  }

  const Target target_ = TeacherPass{};
  const LmHead head_{at::zeros({20, 8})};
  const LmHead other_{at::zeros({30, 12})};
};

TEST_F(TargetSourcesTest, ATensorOfOneHeadIsComputedOnce) {
  const at::Tensor own = At(8);
  const at::Tensor wide = At(12);
  const LmHead same(head_.weight);
  const LmHead twin(head_.weight.clone());
  EXPECT_EQ(SourcesOf({{.hidden = own}, {.hidden = own}}).num_rows(), 3);
  EXPECT_EQ(
      SourcesOf({{.hidden = own}, {.hidden = own, .head = &head_}}).num_rows(),
      3);
  EXPECT_EQ(
      SourcesOf({{.hidden = own}, {.hidden = own, .head = &same}}).num_rows(),
      3);
  EXPECT_EQ(
      SourcesOf({{.hidden = own}, {.hidden = own, .head = &twin}}).num_rows(),
      4)
      << "another model may read the same states otherwise";
  EXPECT_EQ(SourcesOf({{.hidden = wide, .head = &other_},
                       {.hidden = own},
                       {.hidden = wide, .head = &other_}})
                .num_rows(),
            4);
  const at::Tensor logits = at::zeros({kSourceTokens, 30});
  EXPECT_EQ(SourcesOf({{.logits = logits}, {.logits = logits}}).size(), 3u);
}

// The students' rows come first, whatever the order of the terms, since their
// gradient is one product.
TEST_F(TargetSourcesTest, AChunkHasOneProductPerHead) {
  const TargetSources sources =
      SourcesOf({{.hidden = At(12), .head = &other_},
                 {.hidden = At(8)},
                 {.hidden = At(12), .head = &other_}});
  EXPECT_EQ(sources.num_rows(), 5);
  EXPECT_EQ(sources.hidden_bytes(), (3 * 8 + 2 * 12) * 4);
  const HeadChunk chunk{.begin = 2, .tokens = 3, .logits = at::empty({15, 20})};
  const std::vector<HeadProduct> products = sources.ProductsOf(chunk);
  ASSERT_EQ(products.size(), 2u);
  const auto* first = chunk.logits.const_data_ptr<float>();
  for (const auto& [product, count, width, row] :
       {std::tuple{&products[0], 3u, 8, 0}, {&products[1], 2u, 12, 9}}) {
    EXPECT_EQ(product->hidden.size(), count);
    EXPECT_EQ(product->hidden[0].sizes(), at::IntArrayRef({3, width}));
    EXPECT_EQ(product->head.sizes(), at::IntArrayRef({20, width}));
    EXPECT_EQ(product->logits.size(0), count * 3);
    EXPECT_EQ(product->logits.const_data_ptr<float>(), first + row * 20);
  }
}

}  // namespace
}  // namespace dapd
