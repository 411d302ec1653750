#include "services/trainer/workers/prefix_streamer.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

// Remembers what it was told of.
class RecordingTeacher : public TeacherClient {
 public:
  void SetWeights(PolicyUpdates) override {}
  void Submit(ScoreTask) override {}
  void SubmitPrefix(ScoreTask partial) override {
    prefixes_[partial.id].push_back(std::move(partial));
  }
  void WithdrawPrefix(uint64_t id) override { withdrawn_.insert(id); }
  absl::StatusOr<std::optional<ScoreResult>> NextWithin(
      absl::Duration) override {
    return absl::CancelledError("nothing is scored");
  }
  std::vector<WorkerState> Workers() const override { return {}; }
  void Shutdown() override {}

  std::map<uint64_t, std::vector<ScoreTask>> prefixes_;
  std::set<uint64_t> withdrawn_;
};

class PrefixStreamerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = TempPath("model");
    WriteSmallTokenizer(folder);
    tokenizer_ = *Tokenizer::Load(folder);
    chat_ = *ChatTemplate::Load(folder);
    views_ = std::make_unique<ViewBuilder>(*tokenizer_, *chat_, ViewOptions{});
    streamer_ = std::make_unique<PrefixStreamer>(*views_, teacher_, 4);
    ScoreTask task;
    task.id = 20;
    task.views = {{ViewName::kNoneRollout, {}}, {ViewName::kCrossRollout, {}}};
    streamer_->Open(10, {"id", "How many?", "the answer is 123", {}}, {task});
  }

  size_t Length(size_t told, ViewName view) const {
    return teacher_.prefixes_.at(20).at(told).views.at(view).input_ids.size();
  }
  size_t NumTold() const { return teacher_.prefixes_.at(20).size(); }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const ChatTemplate> chat_;
  std::unique_ptr<ViewBuilder> views_;
  RecordingTeacher teacher_;
  std::unique_ptr<PrefixStreamer> streamer_;
};

TEST_F(PrefixStreamerTest, PromptsAreToldAtOnceAndTokensByStrides) {
  ASSERT_EQ(NumTold(), 1U);
  EXPECT_EQ(Length(0, ViewName::kNoneRollout),
            views_->RolloutPrompt("How many?")->size());
  EXPECT_GT(Length(0, ViewName::kCrossRollout),
            Length(0, ViewName::kNoneRollout));
  streamer_->OnTokens(10, {1, 2, 3});
  EXPECT_EQ(NumTold(), 1U);
  streamer_->OnTokens(10, {1, 2, 3, 4});
  ASSERT_EQ(NumTold(), 2U);
  EXPECT_EQ(Length(1, ViewName::kNoneRollout),
            Length(0, ViewName::kNoneRollout) + 4);
  EXPECT_EQ(Length(1, ViewName::kCrossRollout),
            Length(0, ViewName::kCrossRollout) + 4);
  streamer_->OnTokens(10, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(NumTold(), 2U);
}

TEST_F(PrefixStreamerTest, AnAnswerThatIsSampledAgainIsNotToldAgain) {
  streamer_->OnTokens(10, {1, 2, 3, 4, 5, 6});
  streamer_->OnTokens(10, {1, 2, 3, 4});
  streamer_->OnTokens(10, {1, 2, 3, 9, 9, 9, 9, 9, 9, 9});
  EXPECT_EQ(NumTold(), 2U);
  streamer_->OnTokens(10, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_EQ(NumTold(), 3U);
}

TEST_F(PrefixStreamerTest, ASubmittedAnswerIsClosedAnotherOneWithdrawn) {
  streamer_->Close(10, /*submitted=*/true);
  streamer_->OnTokens(10, {1, 2, 3, 4});
  EXPECT_EQ(NumTold(), 1U);
  EXPECT_TRUE(teacher_.withdrawn_.empty());
  ScoreTask task;
  task.id = 21;
  streamer_->Open(11, {"id", "How many?", "123", {}}, {task});
  streamer_->Close(11, /*submitted=*/false);
  EXPECT_TRUE(teacher_.withdrawn_.contains(21));
}

TEST_F(PrefixStreamerTest, WhatIsLeftOpenIsWithdrawn) {
  streamer_->CloseAll();
  EXPECT_TRUE(teacher_.withdrawn_.contains(20));
}

}  // namespace
}  // namespace dapd
