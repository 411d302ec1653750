#include "common/base/json_lines.h"

#include <string>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

TEST(JsonLinesTest, RowsComeBackWithTheirLineNumbers) {
  ASSERT_TRUE(WriteFileAtomically(TempPath("rows.jsonl"),
                                  "{\"a\":\"x\u2028y\"}\n\n{\"a\":2}\n")
                  .ok());
  std::vector<int> lines;
  ASSERT_TRUE(ForEachJsonLine(TempPath("rows.jsonl"),
                              [&](const nlohmann::json&, int line) {
                                lines.push_back(line);
                                return absl::OkStatus();
                              })
                  .ok());
  EXPECT_EQ(lines, (std::vector<int>{1, 3}));
}

TEST(JsonLinesTest, AFolderInAFilesPlaceIsNamed) {
  const absl::Status status = ForEachJsonLine(
      testing::TempDir(),
      [](const nlohmann::json&, int) { return absl::OkStatus(); });
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_NE(status.message().find("is a folder"), std::string::npos) << status;
}

TEST(JsonLinesTest, ABrokenLineIsNamed) {
  ASSERT_TRUE(
      WriteFileAtomically(TempPath("rows.jsonl"), "{}\n{\"a\":\n").ok());
  const absl::Status status = ForEachJsonLine(
      TempPath("rows.jsonl"),
      [](const nlohmann::json&, int) { return absl::OkStatus(); });
  EXPECT_NE(status.message().find("rows.jsonl:2"), absl::string_view::npos)
      << status;
}

TEST(JsonLinesTest, DuplicateKeysDeepNestingAndTrailingTextAreRefused) {
  for (const std::string& text : {std::string("{\"a\":1,\"a\":2}"),
                                  std::string(100, '['),
                                  std::string(70, '[') + std::string(70, ']'),
                                  std::string("1 2"),
                                  std::string("{}\0 no JSON", 11),
                                  std::string("{}\0", 3),
                                  std::string("\"\xff\"")}) {
    EXPECT_FALSE(ParseJson(text, "here").ok()) << text;
  }
}

// Each level of nesting is one or two bytes of text but takes a hundred times
// as much memory.
TEST(JsonLinesTest, WhatFollowsARefusedPlaceIsNotRead) {
  const std::string deep(1 << 20, '[');
  EXPECT_EQ(ParseJson(deep, "here").status().message(),
            "here: nested too deeply");
  EXPECT_EQ(ParseJson("{\"a\":1,\"a\":2, no JSON", "here").status().message(),
            "here: key 'a' occurs twice");
}

TEST(JsonLinesTest, TheWriterKeepsKeyOrder) {
  auto writer = JsonLinesWriter::Open(TempPath("rows.jsonl"));
  ASSERT_TRUE(writer.ok());
  nlohmann::ordered_json row;
  row["z"] = 1;
  row["a"] = 2;
  ASSERT_TRUE(writer->Append(row).ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(ReadFile(TempPath("rows.jsonl"), 100).value(),
            "{\"z\":1,\"a\":2}\n");
}

}  // namespace
}  // namespace dapd
