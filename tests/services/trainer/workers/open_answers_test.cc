#include "services/trainer/workers/open_answers.h"

#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/mutex.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Remembers all calls. Thread-safe.
class RecordingTeacher : public TeacherClient {
 public:
  void SetWeights(PolicyUpdates) override {}
  void Submit(ScoreTask) override {}
  void SubmitPrefix(ScoreTask partial) override {
    MutexLock lock(&mutex_);
    prefixes_[partial.id].push_back(std::move(partial));
  }
  void WithdrawPrefix(uint64_t id) override {
    MutexLock lock(&mutex_);
    withdrawn_.insert(id);
  }
  absl::StatusOr<std::optional<ScoreResult>> NextWithin(
      absl::Duration) override {
    return absl::CancelledError("nothing is scored");
  }
  std::vector<WorkerState> Workers() const override { return {}; }
  void Shutdown() override {}

  std::vector<ScoreTask> Told(uint64_t id) {
    MutexLock lock(&mutex_);
    return prefixes_[id];
  }
  bool IsWithdrawn(uint64_t id) {
    MutexLock lock(&mutex_);
    return withdrawn_.contains(id);
  }

 private:
  Mutex mutex_;
  std::map<uint64_t, std::vector<ScoreTask>> prefixes_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> withdrawn_ ABSL_GUARDED_BY(mutex_);
};

// Counts the tokens that texts are turned into, and notes the thread.
class CountingTokenizer : public Tokenizer {
 public:
  explicit CountingTokenizer(std::unique_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const override {
    auto ids = tokenizer_->Encode(text);
    MutexLock lock(&mutex_);
    if (ids.ok()) encoded_ += static_cast<int64_t>(ids->size());
    threads_.insert(std::this_thread::get_id());
    return ids;
  }
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids,
                                     bool skip_special_tokens) const override {
    MutexLock lock(&mutex_);
    decoded_ += static_cast<int64_t>(ids.size());
    threads_.insert(std::this_thread::get_id());
    return tokenizer_->Decode(ids, skip_special_tokens);
  }
  int32_t size() const override { return tokenizer_->size(); }
  int32_t TokenId(absl::string_view token) const override {
    return tokenizer_->TokenId(token);
  }
  std::optional<std::string> BytesOf(int32_t id) const override {
    return tokenizer_->BytesOf(id);
  }
  std::vector<std::pair<int32_t, int32_t>> Merges() const override {
    return tokenizer_->Merges();
  }
  bool IsAdded(int32_t id) const override { return tokenizer_->IsAdded(id); }
  bool IsSpecial(int32_t id) const override {
    return tokenizer_->IsSpecial(id);
  }
  std::optional<int32_t> pad_id() const override {
    return tokenizer_->pad_id();
  }
  std::optional<int32_t> end_id() const override {
    return tokenizer_->end_id();
  }

  // Starts to count again.
  void Reset() const {
    MutexLock lock(&mutex_);
    encoded_ = decoded_ = 0;
    threads_.clear();
  }
  int64_t encoded() const {
    MutexLock lock(&mutex_);
    return encoded_;
  }
  int64_t decoded() const {
    MutexLock lock(&mutex_);
    return decoded_;
  }
  bool WasUsedHere() const {
    MutexLock lock(&mutex_);
    return threads_.contains(std::this_thread::get_id());
  }

 private:
  const std::unique_ptr<const Tokenizer> tokenizer_;
  mutable Mutex mutex_;
  mutable int64_t encoded_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable int64_t decoded_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

class OpenAnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = TempPath("model");
    WriteSmallTokenizer(folder);
    tokenizer_ = std::make_unique<CountingTokenizer>(*Tokenizer::Load(folder));
    chat_ = *ChatTemplate::Load(folder);
    views_ = std::make_unique<ViewBuilder>(*tokenizer_, *chat_, ViewOptions{});
    answers_ = std::make_unique<OpenAnswers>(
        *views_, teacher_, OpenAnswers::Strides{.teachers = 4, .trainer = 2});
    Open(10, 20, ViewName::kCrossRollout);
    ASSERT_TRUE(IsTold(20, 1));
  }

  void Open(uint64_t id, uint64_t task_id, ViewName view) {
    ScoreTask task;
    task.id = task_id;
    task.views = {{ViewName::kNoneRollout, {}}, {view, {}}};
    answers_->Open(id,
                   {.prompt = {7, 8},
                    .problem = "How many?",
                    .reference = "the answer is 123",
                    .tasks = {task}});
  }
  bool IsTold(uint64_t task_id, size_t times) {
    return Eventually([&] { return teacher_.Told(task_id).size() >= times; });
  }
  size_t Length(size_t told, ViewName view) {
    return teacher_.Told(20).at(told).views.at(view).input_ids.size();
  }
  size_t NumTold() { return teacher_.Told(20).size(); }

  std::unique_ptr<const CountingTokenizer> tokenizer_;
  std::unique_ptr<const ChatTemplate> chat_;
  std::unique_ptr<ViewBuilder> views_;
  RecordingTeacher teacher_;
  std::unique_ptr<OpenAnswers> answers_;
};

TEST_F(OpenAnswersTest, PromptsAreToldAtOnceAndTokensByStrides) {
  EXPECT_EQ(Length(0, ViewName::kNoneRollout),
            views_->RolloutPrompt("How many?")->size());
  EXPECT_GT(Length(0, ViewName::kCrossRollout),
            Length(0, ViewName::kNoneRollout));
  answers_->OnTokens(10, {1, 2, 3});
  answers_->OnTokens(10, {1, 2, 3, 4});
  ASSERT_TRUE(IsTold(20, 2));
  EXPECT_EQ(Length(1, ViewName::kNoneRollout),
            Length(0, ViewName::kNoneRollout) + 4);
  EXPECT_EQ(Length(1, ViewName::kCrossRollout),
            Length(0, ViewName::kCrossRollout) + 4);
  answers_->OnTokens(10, {1, 2, 3, 4, 5, 6, 7});
  answers_->OnTokens(10, {1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_TRUE(IsTold(20, 3));
  EXPECT_EQ(NumTold(), 3U);
  EXPECT_EQ(Length(2, ViewName::kNoneRollout),
            Length(0, ViewName::kNoneRollout) + 8);
}

TEST_F(OpenAnswersTest, AnAnswerThatIsSampledAgainIsNotToldAgain) {
  answers_->OnTokens(10, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(IsTold(20, 2));
  answers_->OnTokens(10, {1, 2, 3, 4});
  answers_->OnTokens(10, {1, 2, 3, 9, 9, 9, 9, 9, 9, 9});
  answers_->OnTokens(10, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  ASSERT_TRUE(IsTold(20, 3));
  EXPECT_EQ(NumTold(), 3U);
  EXPECT_EQ(Length(2, ViewName::kNoneRollout),
            Length(0, ViewName::kNoneRollout) + 10);
}

TEST_F(OpenAnswersTest, ASubmittedAnswerIsClosedAnotherOneWithdrawn) {
  answers_->Close(10, /*submitted=*/true);
  answers_->OnTokens(10, {1, 2, 3, 4});
  EXPECT_FALSE(teacher_.IsWithdrawn(20));
  Open(11, 21, ViewName::kCrossRollout);
  answers_->Close(11, /*submitted=*/false);
  EXPECT_TRUE(teacher_.IsWithdrawn(21));
  Open(12, 22, ViewName::kCrossRollout);
  ASSERT_TRUE(IsTold(22, 1));
  EXPECT_EQ(NumTold(), 1U) << "what was queued before has been seen";
}

TEST_F(OpenAnswersTest, WhatIsLeftOpenIsWithdrawn) {
  answers_->CloseAll();
  EXPECT_TRUE(teacher_.IsWithdrawn(20));
}

// A prompt that shows the answer is tokenized as the answer grows, and not on
// the thread that delivers the tokens of all answers.
TEST_F(OpenAnswersTest, NoTextIsTokenizedTwiceNorByWhoBringsTheTokens) {
  Open(11, 21, ViewName::kCrossReference);
  ASSERT_TRUE(IsTold(21, 1));
  const std::vector<int32_t> piece =
      tokenizer_->Encode("the 123 is 12; ").value();
  std::vector<int32_t> answer;
  tokenizer_->Reset();
  size_t told = 1;
  while (answer.size() < 4000) {
    answer.insert(answer.end(), piece.begin(), piece.end());
    answers_->OnTokens(11, answer);
    ASSERT_TRUE(IsTold(21, ++told));
  }
  const auto tokens = static_cast<int64_t>(answer.size());
  std::cout << "an answer of " << tokens << " tokens, told " << told
            << " times: " << tokenizer_->encoded() << " encoded, "
            << tokenizer_->decoded() << " decoded\n";
  EXPECT_LE(tokenizer_->encoded(), tokens * 12 / 10);
  EXPECT_LE(tokenizer_->decoded(), tokens * 12 / 10);
  EXPECT_FALSE(tokenizer_->WasUsedHere());
  // The teacher has tokens of the text; spaces and letters merge across pieces.
  EXPECT_GT(teacher_.Told(21)
                .back()
                .views.at(ViewName::kCrossReference)
                .input_ids.size(),
            answer.size() * 8 / 10);
}

TEST_F(OpenAnswersTest, ThePrefixOfAnAnswerIsItsPromptAndGrowsByTheStride) {
  EXPECT_THAT(answers_->PrefixOf(10), ElementsAre(7, 8));
  answers_->OnTokens(10, {20});
  EXPECT_THAT(answers_->PrefixOf(10), ElementsAre(7, 8));
  answers_->OnTokens(10, {20, 21, 22});
  EXPECT_THAT(answers_->PrefixOf(10), ElementsAre(7, 8, 20, 21, 22));
  answers_->OnTokens(10, {20, 21, 22, 23});
  EXPECT_THAT(answers_->PrefixOf(10), ElementsAre(7, 8, 20, 21, 22));
}

TEST_F(OpenAnswersTest, AWorkerThatTookTheTaskOverTakesNothingBack) {
  answers_->OnTokens(10, {20, 21});
  answers_->OnTokens(10, {20});
  EXPECT_THAT(answers_->PrefixOf(10), ElementsAre(7, 8, 20, 21));
  answers_->OnTokens(10, {20, 21, 22, 23});
  EXPECT_THAT(answers_->PrefixOf(10), ElementsAre(7, 8, 20, 21, 22, 23));
}

TEST_F(OpenAnswersTest, AnAnswerThatIsNotOpenHasNoPrefix) {
  answers_->OnTokens(1, {20, 21});
  EXPECT_THAT(answers_->PrefixOf(1), IsEmpty());
  answers_->Open(1, {.prompt = {9}});
  EXPECT_THAT(answers_->PrefixOf(1), ElementsAre(9));
  answers_->Close(10, /*submitted=*/true);
  answers_->OnTokens(10, {20, 21});
  EXPECT_THAT(answers_->PrefixOf(10), IsEmpty());
  answers_->CloseAll();
  EXPECT_THAT(answers_->PrefixOf(1), IsEmpty());
}

// The strides of the two readers are independent.
TEST_F(OpenAnswersTest, TheTeachersHearNothingOfWhatOnlyTheTrainerHasYet) {
  answers_->OnTokens(10, {1, 2});
  answers_->OnTokens(10, {1, 2, 3, 4});
  ASSERT_TRUE(IsTold(20, 2));
  answers_->OnTokens(10, {1, 2, 3, 4, 5, 6});
  answers_->OnTokens(10, {1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_TRUE(IsTold(20, 3));
  EXPECT_EQ(NumTold(), 3U);
  EXPECT_EQ(Length(1, ViewName::kNoneRollout),
            Length(0, ViewName::kNoneRollout) + 4);
  EXPECT_EQ(Length(2, ViewName::kNoneRollout),
            Length(0, ViewName::kNoneRollout) + 8);
}

}  // namespace
}  // namespace dapd
