#include "common/data/view_builder.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class ViewsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = TempPath("model");
    WriteSmallTokenizer(folder);
    auto tokenizer = Tokenizer::Load(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    auto chat = ChatTemplate::Load(folder);
    ASSERT_TRUE(chat.ok()) << chat.status();
    chat_ = *std::move(chat);
    sample_ = {"id", "How many?", "the answer is 123", {}};
    sample_.rollout_ids = *tokenizer_->Encode(
        "the 12312 the th the 123 then \xE2\x88\x9A"
        "2 the");
    sample_.rollout_ids.push_back(kSmallEndId);
  }

  static bool Begins(const View& view, const View& prefix) {
    return prefix.input_ids.size() <= view.input_ids.size() &&
           std::equal(prefix.input_ids.begin(),
                      prefix.input_ids.end(),
                      view.input_ids.begin());
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const ChatTemplate> chat_;
  Sample sample_;
};

TEST_F(ViewsTest, PrefixesAreThoseOfTheViewsOnceAllIsKnown) {
  for (const auto self : {ViewOptions::SelfRollout::kAppend,
                          ViewOptions::SelfRollout::kTemplate}) {
    const ViewBuilder builder(*tokenizer_, *chat_, {.self_rollout = self});
    const Views all = builder.Build(sample_).value();
    for (size_t known = 0; known <= sample_.rollout_ids.size(); ++known) {
      Sample so_far = sample_;
      so_far.rollout_ids.resize(known);
      const auto prefixes = builder.BuildPrefixes(so_far);
      ASSERT_TRUE(prefixes.ok()) << prefixes.status();
      for (int i = 0; i < kNumViews; ++i) {
        const auto name = static_cast<size_t>(i);
        EXPECT_TRUE(Begins(all[name], (*prefixes)[name]))
            << ViewNameString(static_cast<ViewName>(i)) << " after " << known;
      }
    }
  }
}

TEST_F(ViewsTest, PrefixesGrowWithTheRollout) {
  const ViewBuilder builder(*tokenizer_, *chat_, {});
  Sample none = sample_;
  none.rollout_ids.clear();
  const Views prompts = builder.BuildPrefixes(none).value();
  const Views known = builder.BuildPrefixes(sample_).value();
  const auto growth = [&](ViewName name) {
    const auto i = static_cast<size_t>(name);
    return known[i].input_ids.size() - prompts[i].input_ids.size();
  };
  const size_t tokens = sample_.rollout_ids.size();
  EXPECT_EQ(growth(ViewName::kNoneRollout), tokens);
  EXPECT_EQ(growth(ViewName::kCrossRollout), tokens);
  EXPECT_GE(growth(ViewName::kCrossReference), tokens - 12);
  EXPECT_TRUE(
      known[static_cast<size_t>(ViewName::kNoneReference)].input_ids.empty());
}

}  // namespace
}  // namespace dapd
