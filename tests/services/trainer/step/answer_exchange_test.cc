#include "services/trainer/step/answer_exchange.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/data/text_pipeline.h"
#include "common/metrics/metrics_registry.h"
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

// Has three ranks with two samples each; each answer is its sample's place.
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

  // Each rank takes the `answers` to its samples. Returns the result of Share()
  // at rank 0, whose new ledger is then in ledger_path_.
  absl::StatusOr<std::vector<RolloutRecord>> Exchange(
      const PlacedAnswers& answers) {
    std::filesystem::remove(ledger_path_);
    const std::unique_ptr<Ledger> ledger = Ledger::Open(ledger_path_).value();
    absl::StatusOr<std::vector<RolloutRecord>> shared;
    const RecordMaker record_maker(*text_.views, *text_.tokenizer, {});
    RunThreadRanks(kRanks, [&](Collective& collective) {
      SampledStep step = step_;
      for (size_t rank = 0; rank < kRanks; ++rank) {
        step.slices.push_back(SliceOf(rank, kRanks, step.rows.size()));
      }
      AnswerExchange exchange(
          collective,
          data_,
          record_maker,
          collective.rank() == 0
              ? std::optional(LedgerOnDisk{.ledger = *ledger, .disk = disk_})
              : std::nullopt);
      exchange.Begin();
      std::vector<RolloutRecord> own;
      for (const auto& [place, result] : answers) {
        if (giver_(place.sample) != collective.rank()) continue;
        EXPECT_TRUE(exchange.Take(step, place, result).ok());
        if (collective.rank() != 0) continue;
        own.emplace_back();
        own.back().text = absl::StrCat("own ", place.sample);
      }
      auto records = exchange.Share(step, own);
      if (collective.rank() == 0) {
        shared = std::move(records);
      } else {
        EXPECT_TRUE(records.ok() && records->empty());
      }
    });
    return shared;
  }

  static PlacedAnswers AllAnswers() {
    PlacedAnswers answers;
    for (int64_t sample = 0; sample < 2 * kRanks; ++sample) {
      answers[{sample}] = AnswerOf(sample);
    }
    return answers;
  }

  // Returns the samples whose answers are in the ledger, in the ledger's order.
  std::vector<int64_t> Accepted() const {
    std::vector<int64_t> samples;
    std::ifstream file(ledger_path_);
    for (std::string line; std::getline(file, line);) {
      const auto event = nlohmann::json::parse(line);
      EXPECT_EQ(event["event"], "accepted");
      EXPECT_EQ(event["step"], 8);
      samples.push_back(event["sample"]);
      EXPECT_EQ(event["id"], absl::StrCat(samples.back()));
    }
    return samples;
  }

  TextPipeline text_;
  Dataset data_;
  SampledStep step_;
  const std::string ledger_path_ = TempPath("ledger.jsonl");
  MetricsRegistry registry_{"trainer", "demo", {}};
  TrainerMetrics metrics_{registry_, {}};
  TrainerStatus status_;
  FullDiskRule disk_{TempPath("run"),
                     OnWriteError::kFail,
                     [](absl::Duration /*pause*/) { return false; },
                     &metrics_,
                     &status_};
  // Returns the rank that answers a sample: its own rank, and the last rank for
  // samples beyond the batch.
  std::function<int(int64_t sample)> giver_ = [](int64_t sample) {
    return std::min(static_cast<int>(sample / 2), kRanks - 1);
  };
};

TEST_F(AnswerExchangeTest, Rank0HasTheRecordsOfAllRanksInTheOrderOfTheBatch) {
  const auto records = Exchange(AllAnswers());
  ASSERT_TRUE(records.ok()) << records.status();
  std::vector<std::string> texts;
  for (const RolloutRecord& record : *records) texts.push_back(record.text);
  EXPECT_THAT(texts, ElementsAre("own 0", "own 1", "2", "3", "4", "5"));
  EXPECT_THAT(Accepted(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(AnswerExchangeTest, ARecalledAnswerIsNotRecordedAgain) {
  step_.plan.recalled[{3, 0}] = AnswerOf(9);
  PlacedAnswers answers = AllAnswers();
  answers.erase({3});
  const auto records = Exchange(answers);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->at(3).text, "9");
  EXPECT_THAT(Accepted(), ElementsAre(0, 1, 2, 4, 5));
}

TEST_F(AnswerExchangeTest, AnAnswerOutsideOfTheBatchIsRefused) {
  PlacedAnswers answers = AllAnswers();
  answers[{2 * kRanks}] = AnswerOf(0);
  const absl::Status status = Exchange(answers).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("trainer rank 2 gave answer 0 to sample 6"));
}

TEST_F(AnswerExchangeTest, MoreAnswersToASampleThanItCanHaveAreRefused) {
  PlacedAnswers answers = AllAnswers();
  answers[{4, kMaxAttempts - 1}] = AnswerOf(4);
  EXPECT_TRUE(Exchange(answers).ok());
  answers[{4, kMaxAttempts}] = AnswerOf(4);
  EXPECT_TRUE(absl::IsDataLoss(Exchange(answers).status()));
}

TEST_F(AnswerExchangeTest, AnAnswerToAnotherRanksSampleIsRefused) {
  for (const int64_t stolen : {0, 5}) {  // of rank 0 and of rank 2
    giver_ = [stolen](int64_t sample) {
      return sample == stolen ? 1 : static_cast<int>(sample / 2);
    };
    const absl::Status status = Exchange(AllAnswers()).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr(absl::StrCat("trainer rank 1 gave answer 0 to sample ",
                               stolen,
                               "; it must give at most ")));
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("to each of its own samples, 2 up to but not including 4"));
    EXPECT_THAT(Accepted(), Not(Contains(stolen)));
  }
}

TEST_F(AnswerExchangeTest, AnAnswerOfAnotherPolicyOnAnyRankIsRefused) {
  PlacedAnswers answers = AllAnswers();
  answers[{4}].policy_version = 6;
  const absl::Status status = Exchange(answers).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("an answer to step 8 was sampled by version 6"),
                    HasSubstr("but the request was for version 7")));
  answers = AllAnswers();
  answers[{4}].adapter_digest = "of another run";
  EXPECT_TRUE(absl::IsFailedPrecondition(Exchange(answers).status()));
}

}  // namespace
}  // namespace dapd
