#include "services/trainer/record/ledger.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/append_file.h"
#include "common/base/crc32c.h"
#include "common/base/files.h"
#include "common/base/version.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() : path_(TempPath("ledger.jsonl")) {}

  void Remove() const {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + ".damaged");
  }
  std::unique_ptr<Ledger> Open() const {
    auto ledger = Ledger::Open(path_);
    EXPECT_TRUE(ledger.ok()) << ledger.status();
    return *std::move(ledger);
  }
  std::string Content() const { return ReadFile(path_, 1 << 20).value(); }
  void Overwrite(const std::string& content) const {
    ASSERT_TRUE(WriteFileAtomically(path_, content).ok());
  }

  // Writes an attempt at step 1 with two answers.
  void WriteTwoAnswers() const {
    const auto ledger = Open();
    ASSERT_TRUE(ledger->Started(0, "a").ok());
    ASSERT_TRUE(ledger->Accepted(1, {0}, "p0", Answer({5, 6})).ok());
    ASSERT_TRUE(ledger->Accepted(1, {1}, "p1", Answer({7})).ok());
  }
  // Changes the last line, an answer, so that it ended for an unknown reason.
  void TireLastAnswer() const {
    const std::string content = Content();
    const size_t line = content.rfind('\n', content.size() - 2) + 1;
    std::string body = content.substr(line, content.rfind(",\"crc\"") - line);
    body.replace(body.find("\"length\""), 8, "\"tired\"");
    Overwrite(content.substr(0, line) + Sealed(body));
  }
  static std::string Sealed(const std::string& body) {
    return absl::StrFormat("%s,\"crc\":\"%08x\"}\n", body, Crc32c(body));
  }
  static RolloutResult Answer(std::vector<int32_t> ids) {
    RolloutResult result;
    result.ids = std::move(ids);
    result.finish_reason = FinishReason::kLength;
    result.adapter_digest = "a";
    return result;
  }

  const std::string path_;
};

TEST_F(LedgerTest, AnAnswerIsRecalledUnderItsAdapterOnly) {
  WriteTwoAnswers();
  const auto ledger = Open();
  const RolloutResult* answer = ledger->Recall(1, {0}, "p0", 0, "a");
  ASSERT_NE(answer, nullptr);
  EXPECT_THAT(answer->ids, ElementsAre(5, 6));
  EXPECT_EQ(answer->finish_reason, FinishReason::kLength);
  EXPECT_EQ(ledger->Recall(1, {0}, "p0", 0, "b"), nullptr) << "another adapter";
  EXPECT_EQ(ledger->Recall(1, {0}, "p0", 1, "a"), nullptr) << "another version";
  EXPECT_EQ(ledger->Recall(1, {0}, "p1", 0, "a"), nullptr) << "another problem";
  EXPECT_EQ(ledger->Recall(2, {0}, "p0", 0, "a"), nullptr) << "another step";
}

TEST_F(LedgerTest, AnAttemptSaysWhichVersionMadeIt) {
  WriteTwoAnswers();
  EXPECT_THAT(Content(),
              HasSubstr(absl::StrFormat(R"("version":"%s")", Version())));
}

TEST_F(LedgerTest, TheSamplersLogProbabilitiesSurviveBitForBit) {
  RolloutResult answer = Answer({5, 6, 7});
  answer.logprobs = {-0.1F, -1e-38F, -123.456F};
  {
    const auto ledger = Open();
    ASSERT_TRUE(ledger->Started(0, "a").ok());
    ASSERT_TRUE(ledger->Accepted(1, {0}, "p0", answer).ok());
  }
  const auto ledger = Open();
  const RolloutResult* recalled = ledger->Recall(1, {0}, "p0", 0, "a");
  ASSERT_NE(recalled, nullptr);
  EXPECT_EQ(recalled->logprobs, answer.logprobs);
}

TEST_F(LedgerTest, AnAnswerOfAnEarlierVersionHasNoLogProbabilities) {
  WriteTwoAnswers();
  const auto ledger = Open();
  const RolloutResult* answer = ledger->Recall(1, {0}, "p0", 0, "a");
  ASSERT_NE(answer, nullptr);
  EXPECT_TRUE(answer->logprobs.empty());
}

// The checksum is right, but the content is no possible answer.
TEST_F(LedgerTest, LogProbabilitiesThatFitNoAnswerAreFound) {
  for (const std::vector<float>& logprobs :
       {std::vector<float>{-1.0F}, std::vector<float>{-1.0F, -INFINITY}}) {
    Remove();
    RolloutResult answer = Answer({5, 6});
    answer.logprobs = logprobs;
    {
      const auto ledger = Open();
      ASSERT_TRUE(ledger->Accepted(1, {0}, "p0", answer).ok());
    }
    EXPECT_EQ(Open()->Recall(1, {0}, "p0", 0, "a"), nullptr);
    EXPECT_TRUE(FileExists(path_ + ".damaged"));
  }
}

TEST_F(LedgerTest, ARecalledAnswerIsNotRecordedAgain) {
  WriteTwoAnswers();
  const std::string before = Content();
  const auto ledger = Open();
  ASSERT_TRUE(ledger->Accepted(1, {0}, "p0", Answer({5, 6})).ok());
  EXPECT_EQ(Content(), before);
}

TEST_F(LedgerTest, EveryAnswerOfASampleIsRecalled) {
  {
    const auto ledger = Open();
    ASSERT_TRUE(ledger->Started(0, "a").ok());
    ASSERT_TRUE(ledger->Accepted(1, {0}, "p0", Answer({5})).ok());
    ASSERT_TRUE(ledger->Accepted(1, {0, 2}, "p0", Answer({7})).ok());
  }
  const auto ledger = Open();
  EXPECT_THAT(ledger->Recall(1, {0, 0}, "p0", 0, "a")->ids, ElementsAre(5));
  EXPECT_EQ(ledger->Recall(1, {0, 1}, "p0", 0, "a"), nullptr);
  EXPECT_THAT(ledger->Recall(1, {0, 2}, "p0", 0, "a")->ids, ElementsAre(7));
  ASSERT_TRUE(ledger->Reached("trained", 1, "b", {0}).ok());
  EXPECT_EQ(ledger->Recall(1, {0, 2}, "p0", 0, "a"), nullptr);
}

TEST_F(LedgerTest, AttemptsAreCounted) {
  WriteTwoAnswers();
  const auto ledger = Open();
  EXPECT_EQ(ledger->attempt(), 1);
  ASSERT_TRUE(ledger->Started(0, "a").ok());
  EXPECT_EQ(ledger->attempt(), 2);
  EXPECT_EQ(Open()->attempt(), 2);
}

TEST_F(LedgerTest, AnAnswerIsForgottenOnceItsStepIsTrained) {
  WriteTwoAnswers();
  const auto ledger = Open();
  ASSERT_TRUE(ledger->Reached("trained", 1, "b", {0, 1}).ok());
  EXPECT_EQ(ledger->Recall(1, {0}, "p0", 0, "a"), nullptr);
}

// A restart may have to go back to the checkpoint before the last one.
TEST_F(LedgerTest, AnswersBehindTheLastButOneCheckpointAreKept) {
  WriteTwoAnswers();
  {
    const auto ledger = Open();
    ASSERT_TRUE(ledger->Reached("trained", 1, "b", {0, 1}).ok());
    ASSERT_TRUE(ledger->Reached("checkpointed", 1, "b").ok());
  }
  EXPECT_NE(Open()->Recall(1, {0}, "p0", 0, "a"), nullptr);
  ASSERT_TRUE(Open()->Reached("checkpointed", 2, "c").ok());
  EXPECT_EQ(Open()->Recall(1, {0}, "p0", 0, "a"), nullptr);
}

TEST_F(LedgerTest, AnUnfinishedLastRecordDoesNotCount) {
  WriteTwoAnswers();
  const std::string whole = Content();
  for (size_t cut = 1; cut < 40; ++cut) {
    Overwrite(whole.substr(0, whole.size() - cut));
    const auto ledger = Open();
    EXPECT_NE(ledger->Recall(1, {0}, "p0", 0, "a"), nullptr);
    EXPECT_EQ(ledger->Recall(1, {1}, "p1", 0, "a"), nullptr)
        << "cut by " << cut;
    EXPECT_EQ(Content().back(), '\n') << "the rest is cut off";
  }
}

TEST_F(LedgerTest, EveryFlippedBitIsFoundAndTheLedgerSetAside) {
  WriteTwoAnswers();
  const std::string whole = Content();
  // The last byte is left out: without it the line is an unfinished record.
  for (size_t i = 0; i + 1 < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    Overwrite(damaged);
    const auto ledger = Open();
    EXPECT_EQ(Content(), "") << "bit " << i % 8 << " of byte " << i;
    EXPECT_EQ(ledger->Recall(1, {0}, "p0", 0, "a"), nullptr);
    EXPECT_EQ(ReadFile(path_ + ".damaged", 1 << 20).value(), damaged);
  }
}

TEST_F(LedgerTest, AnAnswerThatEndedForNoKnownReasonIsDamage) {
  WriteTwoAnswers();
  TireLastAnswer();
  EXPECT_EQ(Open()->Recall(1, {0}, "p0", 0, "a"), nullptr);
  EXPECT_TRUE(FileExists(path_ + ".damaged"));
}

// Such answers can be gigabytes.
TEST_F(LedgerTest, AnswersThatNoResumeNeedsAreNotParsed) {
  WriteTwoAnswers();
  TireLastAnswer();
  {
    auto file = AppendFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    for (const int64_t step : {1, 2}) {
      const std::string body = absl::StrFormat(
          R"({"event":"checkpointed","step":%d,"adapter_digest":"b")", step);
      ASSERT_TRUE(file->Append(Sealed(body)).ok());
    }
  }
  const auto ledger = Open();
  EXPECT_FALSE(FileExists(path_ + ".damaged"));
  EXPECT_EQ(ledger->attempt(), 1);
  EXPECT_EQ(ledger->Recall(1, {1}, "p1", 0, "a"), nullptr);
  ASSERT_TRUE(ledger->Accepted(3, {1, 4}, "p1", Answer({8})).ok());
  EXPECT_THAT(Open()->Recall(3, {1, 4}, "p1", 0, "a")->ids, ElementsAre(8));
}

TEST_F(LedgerTest, TheLaterOfTwoAnswersOfAPlaceCounts) {
  WriteTwoAnswers();
  RolloutResult later = Answer({9});
  later.adapter_digest = "b";
  ASSERT_TRUE(Open()->Accepted(1, {0}, "p0", later).ok());
  EXPECT_EQ(Open()->Recall(1, {0}, "p0", 0, "a"), nullptr);
  EXPECT_THAT(Open()->Recall(1, {0}, "p0", 0, "b")->ids, ElementsAre(9));
}

TEST_F(LedgerTest, AnUnwritableFileIsNamed) {
  const auto ledger = Ledger::Open(path_ + "/no/ledger.jsonl");
  EXPECT_THAT(std::string(ledger.status().message()), HasSubstr("/no/ledger"));
}

TEST_F(LedgerTest, ALedgerOfAnySizeIsReadInPiecesOfBoundedSize) {
  // The lines exceed one block of the reader and end at odd places.
  {
    const auto ledger = Open();
    ASSERT_TRUE(ledger->Started(0, "a").ok());
    for (int64_t sample = 0; sample < 40; ++sample) {
      const std::vector<int32_t> ids(10'007, static_cast<int32_t>(sample));
      ASSERT_TRUE(ledger->Accepted(1, {sample}, "p", Answer(ids)).ok());
    }
  }
  ASSERT_GT(std::filesystem::file_size(path_), 1'000'000u);
  const auto again = Open();
  for (int64_t sample = 0; sample < 40; ++sample) {
    const RolloutResult* answer = again->Recall(1, {sample}, "p", 0, "a");
    ASSERT_NE(answer, nullptr) << sample;
    EXPECT_EQ(answer->ids[10'006], sample);
  }
  // A hole without a newline is noticed before all of it is read.
  std::filesystem::resize_file(path_, uint64_t{1} << 36);
  EXPECT_EQ(Open()->attempt(), 0);
  EXPECT_TRUE(FileExists(path_ + ".damaged"));
}

TEST_F(LedgerTest, AGradeIsRecalledWithItsAnswer) {
  WriteTwoAnswers();
  RolloutResult graded = Answer({5, 6});
  graded.grade = {.correct = true, .score = 1.0 / 3.0, .feedback = "ok"};
  RolloutResult ungraded = Answer({7});
  ungraded.grade = {.ungraded = Ungraded::kTimeout, .error = "slow"};
  {
    const auto ledger = Open();
    ASSERT_TRUE(ledger->Started(0, "a").ok());
    ASSERT_TRUE(ledger->Graded(1, {0}, "p0", graded).ok());
    ASSERT_TRUE(ledger->Graded(1, {1}, "p1", ungraded).ok());
    // A grade without its answer.
    ASSERT_TRUE(ledger->Graded(1, {2}, "p2", graded).ok());
  }
  EXPECT_THAT(Content(),
              HasSubstr(R"({"event":"graded","step":1,"sample":1,)"
                        R"("ungraded":"timeout","crc")"));
  const auto ledger = Open();
  EXPECT_EQ(ledger->Recall(1, {0}, "p0", 0, "a")->grade, graded.grade);
  EXPECT_EQ(ledger->Recall(1, {1}, "p1", 0, "a")->grade,
            (GraderResult{.ungraded = Ungraded::kTimeout}));
  EXPECT_EQ(ledger->Recall(1, {2}, "p2", 0, "a"), nullptr);
  // It is not written twice.
  const std::string content = Content();
  ASSERT_TRUE(ledger->Graded(1, {0}, "p0", graded).ok());
  EXPECT_EQ(Content(), content);
}

TEST_F(LedgerTest, AnAnswerThatReplacesAnotherHasNoGrade) {
  {
    WriteTwoAnswers();
    const auto ledger = Open();
    RolloutResult graded = Answer({7});
    graded.grade = {.correct = true, .score = 1.0};
    ASSERT_TRUE(ledger->Graded(1, {1}, "p1", graded).ok());
    RolloutResult other = Answer({8});
    other.adapter_digest = "b";
    ASSERT_TRUE(ledger->Accepted(1, {1}, "p1", other).ok());
  }
  const RolloutResult* answer = nullptr;
  const auto ledger = Open();
  answer = ledger->Recall(1, {1}, "p1", 0, "b");
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->grade, std::nullopt);
}

TEST_F(LedgerTest, HeldOutGradesAreRecalledForTheirAnswer) {
  RolloutResult graded = Answer({5, 6});
  graded.grade = {.correct = false, .score = 0.25};
  {
    const auto ledger = Open();
    ASSERT_TRUE(ledger->Started(0, "a").ok());
    for (const int64_t version : {0, 2}) {
      ASSERT_TRUE(ledger->HeldOutGraded(version, 3, graded).ok());
    }
  }
  const auto ledger = Open();
  EXPECT_EQ(ledger->RecallHeldOutGrade(0, 3, {5, 6}), graded.grade);
  EXPECT_EQ(ledger->RecallHeldOutGrade(2, 3, {5, 6}), graded.grade);
  EXPECT_EQ(ledger->RecallHeldOutGrade(0, 3, {5, 7}), std::nullopt);
  EXPECT_EQ(ledger->RecallHeldOutGrade(0, 4, {5, 6}), std::nullopt);
  EXPECT_EQ(ledger->RecallHeldOutGrade(1, 3, {5, 6}), std::nullopt);
}

TEST_F(LedgerTest, AGradeThatNobodyGaveIsDamage) {
  for (const std::string grade : {R"("correct":true,"score":1.5)",
                                  R"("correct":1,"score":1)",
                                  R"("ungraded":"tired")"}) {
    Remove();
    WriteTwoAnswers();
    Overwrite(Content() +
              Sealed(R"({"event":"graded","step":1,"sample":0,)" + grade));
    Open();
    EXPECT_TRUE(FileExists(path_ + ".damaged")) << grade;
  }
}

}  // namespace
}  // namespace dapd
