#include "common/data/sample_rows.h"

#include <string>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

absl::StatusOr<std::vector<Sample>> ReadWithIds(const std::string& ids) {
  const std::string path = TempPath("samples.jsonl");
  const std::string row =
      R"({"id":"a","problem":"p","reference":"r","rollout_ids":)" + ids + "}\n";
  const absl::Status written = WriteFileAtomically(path, row);
  if (!written.ok()) return written;
  return ReadSamples(path, /*vocab_size=*/100);
}

TEST(SampleRowsTest, ARecordedSampleIsRead) {
  const auto samples = ReadWithIds("[0, 99]");
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 1u);
  EXPECT_EQ(samples->front().id, "a");
  EXPECT_EQ(samples->front().rollout_ids, (std::vector<int32_t>{0, 99}));
}

// A number that is no id must not become one by rounding or wrapping.
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

}  // namespace
}  // namespace dapd
