#include "services/cli/answer_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const nlohmann::ordered_json kSettings = {{"model", "abc"}, {"seed", 42}};

AnswerRecord RecordOf(int64_t index, int64_t sample) {
  return {.index = index,
          .sample = sample,
          .id = absl::StrCat("p", index),
          .text = "so \\boxed{4}\n",
          .answer = "4",
          .grade = {.has_box = true, .correct = true, .extracted = "4"},
          .tokens = 7,
          .finish_reason = FinishReason::kEos};
}

// Returns "index/sample" of every answer that an earlier call left.
absl::StatusOr<std::vector<std::string>> Left(
    const std::string& path,
    const nlohmann::ordered_json& settings = kSettings) {
  std::vector<std::string> left;
  const auto file =
      AnswerFile::Open(path, settings, [&](const AnswerRecord& record) {
        left.push_back(absl::StrCat(record.index, "/", record.sample));
        return absl::OkStatus();
      });
  if (!file.ok()) return file.status();
  return left;
}

void Write(const std::string& path, const std::vector<AnswerRecord>& records) {
  auto file = AnswerFile::Open(
      path, kSettings, [](const AnswerRecord&) { return absl::OkStatus(); });
  ASSERT_TRUE(file.ok()) << file.status();
  for (const AnswerRecord& record : records) {
    ASSERT_TRUE(file->Append(record).ok());
  }
}

std::string Bytes(const std::string& path) {
  return ReadFile(path, 1 << 20).value_or("");
}

TEST(AnswerFileTest, WhatIsNoFileIsRefusedAndGetsNoManifest) {
  const std::string path = TempPath("device");
  std::filesystem::create_symlink("/dev/null", path);
  for (const std::string& wrong : {path, testing::TempDir()}) {
    const absl::Status status = Left(wrong).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
  }
  EXPECT_FALSE(FileExists(path + ".manifest.json"));
}

TEST(AnswerFileTest, ASecondCallFindsWhatTheFirstWrote) {
  const std::string path = TempPath("answers.jsonl");
  Write(path, {RecordOf(1, 0), RecordOf(0, 1)});
  const auto left = Left(path);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_THAT(*left, ElementsAre("1/0", "0/1"));
}

TEST(AnswerFileTest, ARowTellsAllThatAReportNeeds) {
  const AnswerRecord record = RecordOf(3, 2);
  const auto read =
      ParseAnswerRecord(nlohmann::json::parse(ToJson(record).dump()), "here");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->id, "p3");
  EXPECT_EQ(read->text, record.text);
  EXPECT_EQ(read->index, 3);
  EXPECT_EQ(read->sample, 2);
  EXPECT_EQ(read->tokens, 7);
  EXPECT_TRUE(read->grade.has_box && read->grade.correct && !read->repeated);
  EXPECT_EQ(read->finish_reason, FinishReason::kEos);
}

TEST(AnswerFileTest, AHalfWrittenLastLineIsCutOff) {
  const std::string path = TempPath("torn.jsonl");
  Write(path, {RecordOf(0, 0), RecordOf(0, 1)});
  const std::string whole = Bytes(path);
  ASSERT_TRUE(
      WriteFileAtomically(path, whole.substr(0, whole.size() - 9)).ok());
  const auto left = Left(path);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_THAT(*left, ElementsAre("0/0"));
  Write(path, {RecordOf(0, 1)});
  EXPECT_EQ(Bytes(path), whole);
}

TEST(AnswerFileTest, OtherSettingsAreRefusedByNameAndNothingIsLost) {
  const std::string path = TempPath("other.jsonl");
  Write(path, {RecordOf(0, 0)});
  const std::string before = Bytes(path);
  const absl::Status refused =
      Left(path, {{"model", "abc"}, {"seed", 43}}).status();
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kData);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("seed was 42, now 43"),
                    HasSubstr("choose another --output")));
  EXPECT_EQ(Bytes(path), before);
  EXPECT_TRUE(Left(path).ok());
}

TEST(AnswerFileTest, AFileOfSomethingElseIsRefused) {
  const std::string path = TempPath("foreign.jsonl");
  ASSERT_TRUE(WriteFileAtomically(path, "{\"id\": 1}\n").ok());
  EXPECT_THAT(std::string(Left(path).status().message()),
              HasSubstr("has no manifest"));
  EXPECT_EQ(Bytes(path), "{\"id\": 1}\n");
}

TEST(AnswerFileTest, ADamagedLineIsNamed) {
  const std::string path = TempPath("damaged.jsonl");
  Write(path, {RecordOf(0, 0)});
  const std::string good = Bytes(path);
  ASSERT_TRUE(WriteFileAtomically(path, good + "{\"id\": \"x\"}\n").ok());
  EXPECT_THAT(std::string(Left(path).status().message()),
              HasSubstr("damaged.jsonl:2"));
}

TEST(AnswerFileTest, OnlyOneProcessWrites) {
  const std::string path = TempPath("held.jsonl");
  const auto held = AnswerFile::Open(
      path, kSettings, [](const AnswerRecord&) { return absl::OkStatus(); });
  ASSERT_TRUE(held.ok());
  EXPECT_TRUE(absl::IsUnavailable(Left(path).status()));
}

// A call may begin while the call before it writes its last answer.
TEST(AnswerFileTest, WhatIsWrittenUntilTheLockIsFreeCounts) {
  const std::string path = TempPath("handed_over.jsonl");
  Write(path, {RecordOf(1, 0)});
  const std::string last = absl::StrCat(ToJson(RecordOf(2, 0)).dump(), "\n");
  const int other = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  std::thread before([&] {
    absl::SleepFor(absl::Milliseconds(30));
    EXPECT_TRUE(WriteAll(other, path, last).ok());
    ::close(other);
  });
  auto file = AnswerFile::Open(
      path, kSettings, [](const AnswerRecord&) { return absl::OkStatus(); });
  before.join();
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append(RecordOf(0, 0)).ok());
  ASSERT_TRUE(file->Sort().ok());
  EXPECT_EQ(Bytes(path),
            absl::StrCat(ToJson(RecordOf(0, 0)).dump(),
                         "\n",
                         ToJson(RecordOf(1, 0)).dump(),
                         "\n",
                         last));
}

TEST(AnswerFileTest, SortingPutsTheFileInTheOrderOfTheData) {
  const std::string path = TempPath("sorted.jsonl");
  {
    auto file = AnswerFile::Open(
        path, kSettings, [](const AnswerRecord&) { return absl::OkStatus(); });
    ASSERT_TRUE(file.ok());
    for (const auto& [index, sample] :
         {std::pair(2, 0), std::pair(0, 1), std::pair(0, 0), std::pair(1, 0)}) {
      ASSERT_TRUE(file->Append(RecordOf(index, sample)).ok());
    }
    ASSERT_TRUE(file->Sort().ok());
  }
  const auto left = Left(path);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_THAT(*left, ElementsAre("0/0", "0/1", "1/0", "2/0"));
}

}  // namespace
}  // namespace dapd
