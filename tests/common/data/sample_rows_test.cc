#include "common/data/sample_rows.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/data/text_pipeline.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

absl::StatusOr<std::vector<SampleRow>> ReadWithIds(const std::string& ids) {
  const std::string path = TempPath("samples.jsonl");
  const std::string row =
      R"({"id":"a","problem":"p","reference":"r","rollout_ids":)" + ids + "}\n";
  const absl::Status written = WriteFileAtomically(path, row);
  if (!written.ok()) return written;
  return ReadSampleRows(path, /*vocab_size=*/100);
}

TEST(SampleRowsTest, ARecordedSampleIsRead) {
  const auto samples = ReadWithIds("[0, 99]");
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 1u);
  EXPECT_EQ(samples->front().sample.id, "a");
  EXPECT_EQ(samples->front().sample.problem, "p");
  EXPECT_EQ(samples->front().sample.reference, "r");
  EXPECT_EQ(samples->front().sample.rollout_ids, (std::vector<int32_t>{0, 99}));
}

// A number that is not an id must not become one by rounding or wrapping.
TEST(SampleRowsTest, WhatIsNoIdOfTheVocabularyIsRefusedByFileAndLine) {
  for (const char* ids : {"[100]",
                          "[-1]",
                          "[1.5]",
                          "[true]",
                          "[4294967297]",
                          "[4.18447e+29]",
                          "[[1]]",
                          "{\"a\": 1}",
                          "7",
                          "null"}) {
    const auto samples = ReadWithIds(ids);
    ASSERT_FALSE(samples.ok()) << ids;
    EXPECT_EQ(ExitCodeOf(samples.status()), ExitCode::kData);
    EXPECT_NE(samples.status().message().find("samples.jsonl:1: rollout_ids"),
              absl::string_view::npos)
        << samples.status();
  }
}

absl::StatusOr<std::vector<SampleRow>> ReadRows(
    const std::vector<std::string>& more) {
  const std::string path = TempPath("rows.jsonl");
  std::string rows;
  for (const std::string& fields : more) {
    rows += R"({"id":"a","problem":"p","reference":"so \\boxed{1}",)"
            R"("rollout_ids":[7,8])" +
            fields + "}\n";
  }
  const absl::Status written = WriteFileAtomically(path, rows);
  if (!written.ok()) return written;
  return ReadSampleRows(path, /*vocab_size=*/300);
}

TEST(SampleRowsTest, WhatARunRecordsBesidesIsRead) {
  const auto rows = ReadRows(
      {R"(,"reference_ids":[5],"sampler_logprobs":[-0.5,-1],"left_out":true,)"
       R"("answer":3,"correct":true,"feedback":"no","rollout":"x")",
       R"(,"answer":null,"correct":null,"sampler_logprobs":[])"});
  ASSERT_TRUE(rows.ok()) << rows.status();
  const SampleRow& row = (*rows)[0];
  EXPECT_EQ(row.sample.reference_ids, (std::vector<int32_t>{5}));
  EXPECT_EQ(row.sampler_logprobs, (std::vector<float>{-0.5F, -1.0F}));
  EXPECT_TRUE(row.is_left_out);
  EXPECT_EQ(row.answer, "3");
  EXPECT_EQ(row.correct, true);
  EXPECT_EQ(row.feedback, "no");
  EXPECT_FALSE((*rows)[1].correct.has_value());
  EXPECT_EQ((*rows)[1].answer, "");
  EXPECT_FALSE((*rows)[1].is_left_out);
}

TEST(SampleRowsTest, WhatDoesNotFitItsRolloutIsRefused) {
  for (const char* fields : {R"(,"sampler_logprobs":[-1])",
                             R"(,"sampler_logprobs":["a","b"])",
                             R"(,"sampler_logprobs":[-1,-1e39])",
                             R"(,"reference_ids":[300])",
                             R"(,"correct":"yes")"}) {
    const auto rows = ReadRows({fields});
    EXPECT_EQ(ExitCodeOf(rows.status()), ExitCode::kData) << fields;
  }
}

TEST(SampleRowsTest, AViewMayFillTheContext) {
  const std::string folder = TempPath("sample_rows_model");
  WriteSmallTokenizer(folder);
  const TextPipeline text =
      LoadTextPipeline(folder, {}, /*end_token_id=*/-1).value();
  const Sample sample = {"a", "p", "so 1", {7, 8}};
  size_t longest = 0;
  for (const View& view : BuildViewsOf(*text.views, sample).value()) {
    longest = std::max(longest, view.input_ids.size());
  }
  const auto context = static_cast<int64_t>(longest);
  EXPECT_TRUE(BuildViewsWithin(*text.views, sample, context).ok());
  EXPECT_EQ(
      ExitCodeOf(BuildViewsWithin(*text.views, sample, context - 1).status()),
      ExitCode::kData);
}

class FillContextsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = TempPath("sample_rows_model");
    WriteSmallTokenizer(folder);
    text_ = LoadTextPipeline(folder, {}, /*end_token_id=*/-1).value();
    config_.objective.preset = "sdpo";
    config_.rollout.group_size = 2;
  }
  // Returns one row for each text; all rows answer the same problem.
  std::vector<SampleRow> Rows(const std::vector<std::string>& texts) const {
    std::vector<SampleRow> rows(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      rows[i].sample.problem = "p";
      rows[i].sample.reference = "so \\boxed{1}";
      rows[i].sample.rollout_ids = text_.tokenizer->Encode(texts[i]).value();
    }
    return rows;
  }

  TextPipeline text_;
  Config config_;
};

TEST_F(FillContextsTest, RowsFollowEachOtherInGroups) {
  std::vector<SampleRow> rows =
      Rows({"\\boxed{1}", "\\boxed{2}", "\\boxed{3}", "\\boxed{4}"});
  rows[2].answer = "1 + 2\n#### 3";
  rows[3].sample.problem = rows[2].sample.problem = "q";
  ASSERT_TRUE(FillContexts(config_, *text_.views, &rows).ok());
  EXPECT_TRUE(rows[0].sample.context.empty());
  EXPECT_EQ(rows[1].sample.context.sibling, "\\boxed{1}");
  EXPECT_TRUE(rows[2].sample.context.empty());
  EXPECT_EQ(rows[3].sample.context.sibling, "\\boxed{3}");
}

TEST_F(FillContextsTest, AGivenGradeAndFeedbackCount) {
  std::vector<SampleRow> rows = Rows({"\\boxed{1}", "\\boxed{2}"});
  rows[0].correct = false;
  rows[0].feedback = "it does not compile";
  rows[1].was_truncated = true;
  config_.objective.sdpo.feedback = FeedbackRule::kWithoutSibling;
  ASSERT_TRUE(FillContexts(config_, *text_.views, &rows).ok());
  EXPECT_EQ(rows[0].sample.context.feedback, "it does not compile");
  EXPECT_EQ(
      rows[1].sample.context.feedback,
      "Your response was truncated because it exceeded the maximum length.");
}

TEST_F(FillContextsTest, AGraderOfTheUsersOwnAloneGivesFeedback) {
  std::vector<SampleRow> rows = Rows({"no box", "no box either"});
  rows[0].has_given_grade = true;
  config_.objective.sdpo.feedback = FeedbackRule::kAlways;
  ASSERT_TRUE(FillContexts(config_, *text_.views, &rows).ok());
  EXPECT_EQ(rows[0].sample.context.feedback, "");
  EXPECT_NE(rows[1].sample.context.feedback, "");
}

TEST_F(FillContextsTest, AGroupThatIsNoneIsRefused) {
  std::vector<SampleRow> rows = Rows({"a", "b", "c"});
  EXPECT_EQ(ExitCodeOf(FillContexts(config_, *text_.views, &rows)),
            ExitCode::kData);
  rows = Rows({"a", "b"});
  rows[1].sample.problem = "q";
  EXPECT_EQ(ExitCodeOf(FillContexts(config_, *text_.views, &rows)),
            ExitCode::kData);
  config_.objective.preset = "dapd";
  EXPECT_TRUE(FillContexts(config_, *text_.views, &rows).ok())
      << "nothing reads them";
}

}  // namespace
}  // namespace dapd
