#include "services/trainer/step/answer_exchange.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/data/text_pipeline.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/thread_ranks.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Three ranks with two samples each, whose answers are their places.
class AnswerExchangeTest : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  AnswerExchangeTest() {
    const std::string folder = TempPath("tokenizer");
    WriteSmallTokenizer(folder);
    text_ = LoadTextPipeline(folder, {}, kSmallEndId).value();
    auto policy = std::make_shared<PolicyUpdate>();
    policy->version = 7;
    policy->adapter.digest = "digest";
    step_.plan.step = 8;
    step_.policy = policy;
    for (int64_t row = 0; row < 2 * kRanks; ++row) {
      data_.problems.push_back({absl::StrCat(row), "How many?", "", ""});
      step_.rows.push_back(row);
    }
  }

  static RolloutResult AnswerOf(int64_t sample) {
    RolloutResult result;
    result.ids = {static_cast<int32_t>('0' + sample), kSmallEndId};
    result.logprobs = {-1, -1};
    result.policy_version = 7;
    result.adapter_digest = "digest";
    return result;
  }

  // Lets each rank take `answers` of its samples but recalled ones. What Share
  // gives at rank 0; what was handed on there is in handed_on_.
  absl::StatusOr<std::vector<RolloutRecord>> Exchange(
      const std::vector<BatchAnswer>& answers) {
    absl::StatusOr<std::vector<RolloutRecord>> shared;
    const RecordMaker record_maker(*text_.views, *text_.tokenizer, {});
    const AnswerRules rules;
    RunThreadRanks(kRanks, [&](Collective& collective) {
      SampledStep step = step_;
      for (size_t rank = 0; rank < kRanks; ++rank) {
        step.slices.push_back(SliceOf(rank, kRanks, step.rows.size()));
      }
      OnAnswer on_answer;
      if (collective.rank() == 0) {
        on_answer = [&](const AnswerPlace& place,
                        const Problem& problem,
                        const RolloutResult&) {
          EXPECT_EQ(problem.id, absl::StrCat(place.sample));
          handed_on_.push_back(place.sample);
          return absl::OkStatus();
        };
      }
      AnswerExchange exchange(collective, data_, record_maker, rules);
      exchange.Begin();
      std::vector<RolloutRecord> own;
      for (const BatchAnswer& answer : answers) {
        if (giver_(answer) != collective.rank()) continue;
        EXPECT_TRUE(
            exchange.Take(step, answer.place, answer.result, on_answer).ok());
        if (collective.rank() != 0) continue;
        own.emplace_back();
        own.back().text = absl::StrCat("own ", answer.place.sample);
      }
      auto records = exchange.Share(step, own, on_answer);
      if (collective.rank() == 0) {
        shared = std::move(records);
      } else {
        EXPECT_TRUE(records.ok() && records->empty());
      }
    });
    return shared;
  }

  static std::vector<BatchAnswer> AllAnswers() {
    std::vector<BatchAnswer> answers;
    for (int64_t sample = 0; sample < 2 * kRanks; ++sample) {
      answers.push_back({{sample, 0}, AnswerOf(sample)});
    }
    return answers;
  }

  TextPipeline text_;
  Dataset data_;
  SampledStep step_;
  std::vector<int64_t> handed_on_;  // at rank 0
  // The rank that gives an answer: its sample's; the last one beyond the batch.
  std::function<int(const BatchAnswer&)> giver_ =
      [](const BatchAnswer& answer) {
        return std::min(static_cast<int>(answer.place.sample / 2), kRanks - 1);
      };
};

TEST_F(AnswerExchangeTest, Rank0HasTheRecordsOfAllRanksInTheOrderOfTheBatch) {
  const auto records = Exchange(AllAnswers());
  ASSERT_TRUE(records.ok()) << records.status();
  std::vector<std::string> texts;
  for (const RolloutRecord& record : *records) texts.push_back(record.text);
  EXPECT_THAT(texts, ElementsAre("own 0", "own 1", "2", "3", "4", "5"));
  EXPECT_THAT(handed_on_, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(AnswerExchangeTest, ARecalledAnswerIsNotHandedOnAgain) {
  step_.plan.recalled[{3, 0}] = AnswerOf(9);
  std::vector<BatchAnswer> answers = AllAnswers();
  answers.erase(answers.begin() + 3);
  const auto records = Exchange(answers);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->at(3).text, "9");
  EXPECT_THAT(handed_on_, ElementsAre(0, 1, 2, 4, 5));
}

TEST_F(AnswerExchangeTest, AnAnswerOutsideOfTheBatchIsRefused) {
  std::vector<BatchAnswer> answers = AllAnswers();
  answers.push_back({{2 * kRanks, 0}, AnswerOf(0)});
  const absl::Status status = Exchange(answers).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("trainer rank 2 gave answer 0 to sample 6"));
}

TEST_F(AnswerExchangeTest, MoreAnswersToASampleThanItCanHaveAreRefused) {
  std::vector<BatchAnswer> answers = AllAnswers();
  answers.push_back({{4, kMaxAttempts - 1}, AnswerOf(4)});
  EXPECT_TRUE(Exchange(answers).ok());
  answers.back().place.attempt = kMaxAttempts;
  EXPECT_TRUE(absl::IsDataLoss(Exchange(answers).status()));
}

TEST_F(AnswerExchangeTest, AnAnswerToAnotherRanksSampleIsRefused) {
  for (const int64_t sample : {0, 5}) {  // of rank 0 and of rank 2
    handed_on_.clear();
    giver_ = [sample](const BatchAnswer& answer) {
      return answer.place.sample == sample
                 ? 1
                 : static_cast<int>(answer.place.sample / 2);
    };
    const absl::Status status = Exchange(AllAnswers()).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(absl::StrCat("trainer rank 1 gave answer 0 to sample ",
                               sample,
                               "; it must give at most ")));
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("to each of its own samples, 2 up to but not including 4"));
    EXPECT_THAT(handed_on_, Not(Contains(sample)));
  }
}

TEST_F(AnswerExchangeTest, AnAnswerOfAnotherPolicyOnAnyRankIsRefused) {
  std::vector<BatchAnswer> answers = AllAnswers();
  answers[4].result.policy_version = 6;
  const absl::Status status = Exchange(answers).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("an answer to step 8 was sampled by version 6"),
                    HasSubstr("but the request was for version 7")));
  answers = AllAnswers();
  answers[4].result.adapter_digest = "of another run";
  EXPECT_TRUE(absl::IsFailedPrecondition(Exchange(answers).status()));
}

}  // namespace
}  // namespace dapd
