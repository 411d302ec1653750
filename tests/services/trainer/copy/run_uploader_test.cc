// Copies to a folder with the real helper.
#include "services/trainer/copy/run_uploader.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"
#include "tests/services/trainer/copy/run_folder_example.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunUploaderTest : public testing::Test {
 protected:
  RunUploaderTest()
      : store_({.url = place_,
                .command = ObjectStoreCommand("", place_),
                .on_sent = [this](int64_t bytes) { sent_ += bytes; }}) {}

  RunUploader Uploader(int64_t keep, const std::string& run = "mine") {
    return RunUploader(&store_, run, "example", keep);
  }
  absl::Status Copy(RunUploader& uploader, int64_t step) {
    SaveStep(folder_, step);
    absl::Status status = uploader.Open();
    if (status.ok()) status = uploader.Upload(CutRun(folder_, step).value());
    if (status.ok()) status = uploader.Thin();
    return status;
  }
  size_t Objects() { return store_.List("objects").value().size(); }

  const std::string folder_ = TempPath("run");
  const std::string place_ = TempPath("copy");
  int64_t sent_ = 0;
  ObjectStore store_;
};

TEST_F(RunUploaderTest, ACommitNamesWhatTheFolderHeld) {
  RunUploader uploader = Uploader(0);
  ASSERT_TRUE(Copy(uploader, 2).ok());
  ASSERT_TRUE(Copy(uploader, 4).ok());
  EXPECT_THAT(*ListCommits(store_), ElementsAre(2, 4));
  const auto two = ReadCommit(store_, 2);
  const auto four = ReadCommit(store_, 4);
  ASSERT_TRUE(two.ok() && four.ok());
  EXPECT_TRUE(two->files.contains("checkpoints/step-000002/state.json"));
  EXPECT_FALSE(four->files.contains("checkpoints/step-000002/state.json"));
  // Only the new end of a file that grows is sent.
  const auto& metrics = four->files.at("metrics.jsonl");
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[0], two->files.at("metrics.jsonl")[0]);
}

TEST_F(RunUploaderTest, WhatIsThereIsNotSentAgain) {
  RunUploader first = Uploader(0);
  ASSERT_TRUE(Copy(first, 2).ok());
  const RunCut cut = CutRun(folder_, 2).value();
  const size_t objects = Objects();
  RunUploader second = Uploader(0);
  ASSERT_TRUE(second.Open().ok());
  const int64_t before = sent_;
  ASSERT_TRUE(second.Upload(cut).ok());
  EXPECT_EQ(sent_, before);
  EXPECT_EQ(Objects(), objects);
}

// The ledger of a long run has gigabytes.
TEST_F(RunUploaderTest, AFileThatGrowsLittleByLittleIsNotSentWholeAgain) {
  constexpr int64_t kBegin = 1 << 20;
  constexpr int64_t kMore = 1 << 10;
  constexpr int64_t kSteps = 130;
  const std::string path = TempPath("ledger.jsonl");
  std::string text(kBegin, 'x');
  RunUploader uploader = Uploader(0);
  ASSERT_TRUE(uploader.Open().ok());
  for (int64_t step = 1; step <= kSteps; ++step) {
    // The file grows in place, because the copy knows it by its inode.
    std::ofstream(path, std::ios::app) << text;
    const absl::Status copied =
        uploader.Upload({.step = step,
                         .files = {{.name = "ledger.jsonl",
                                    .path = path,
                                    .bytes = kBegin + (step - 1) * kMore,
                                    .grows = true}}});
    ASSERT_TRUE(copied.ok()) << copied;
    text = std::string(kMore, static_cast<char>('a' + step % 26));
  }
  const auto parts =
      ReadCommit(store_, kSteps).value().files.at("ledger.jsonl");
  EXPECT_LE(parts.size(), 64U);
  EXPECT_EQ(BytesOf(parts), kBegin + (kSteps - 1) * kMore);
  // The bytes include the commits and a few bytes that were sent twice.
  EXPECT_LT(sent_, 2 * kBegin);
}

TEST_F(RunUploaderTest, OldCommitsGoWithWhatOnlyTheyName) {
  RunUploader uploader = Uploader(1);
  ASSERT_TRUE(Copy(uploader, 2).ok());
  ASSERT_TRUE(Copy(uploader, 4).ok());
  EXPECT_THAT(*ListCommits(store_), ElementsAre(4));
  const auto four = ReadCommit(store_, 4);
  ASSERT_TRUE(four.ok()) << four.status();
  std::map<std::string, int64_t> named;
  for (const auto& [path, parts] : four->files) {
    for (const Content& part : parts) named[ObjectName(part)] = part.bytes;
  }
  EXPECT_EQ(Objects(), named.size());
}

// The process of a part was killed, or still writes the part.
TEST_F(RunUploaderTest, WhatIsWrittenHalfGoesOnceItIsOld) {
  const std::string owner = place_ + "/owner.json.1.part";
  const std::string old = place_ + "/objects/old.2.part";
  const std::string fresh = place_ + "/objects/fresh.3.part";
  ASSERT_TRUE(MakeDirectories(place_ + "/objects").ok());
  for (const std::string& part : {owner, old, fresh}) {
    ASSERT_TRUE(WriteFileAtomically(part, "half").ok());
    if (part == fresh) continue;
    std::filesystem::last_write_time(
        part,
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  }
  RunUploader uploader = Uploader(1);
  const absl::Status copied = Copy(uploader, 2);
  ASSERT_TRUE(copied.ok()) << copied;
  EXPECT_FALSE(FileExists(owner));
  EXPECT_FALSE(FileExists(old));
  EXPECT_TRUE(FileExists(fresh));
}

TEST_F(RunUploaderTest, LaterCopiesOfAnEarlierAttemptStay) {
  RunUploader first = Uploader(1);
  ASSERT_TRUE(Copy(first, 8).ok());
  RunUploader back = Uploader(1);
  ASSERT_TRUE(Copy(back, 2).ok());
  ASSERT_TRUE(Copy(back, 4).ok());
  EXPECT_THAT(*ListCommits(store_), ElementsAre(4, 8));
  ASSERT_TRUE(Copy(back, 10).ok());
  EXPECT_THAT(*ListCommits(store_), ElementsAre(10));
}

TEST_F(RunUploaderTest, AnObjectThatVanishedOrIsCutOffIsSentAgain) {
  RunUploader uploader = Uploader(0);
  ASSERT_TRUE(Copy(uploader, 2).ok());
  const auto two = ReadCommit(store_, 2);
  const auto& files = two->files;
  const std::string lost = ObjectName(files.at("config.yaml")[0]);
  const std::string cut = ObjectName(files.at("metrics.jsonl")[0]);
  ASSERT_TRUE(std::filesystem::remove(JoinPath(place_, lost)));
  std::filesystem::resize_file(JoinPath(place_, cut), 1);
  ASSERT_TRUE(Copy(uploader, 4).ok());
  EXPECT_TRUE(*store_.Check(lost, files.at("config.yaml")[0]));
  EXPECT_TRUE(*store_.Check(cut, files.at("metrics.jsonl")[0]));
}

TEST_F(RunUploaderTest, AnotherRunsPlaceAndForeignThingsAreLeftAlone) {
  RunUploader first = Uploader(1);
  ASSERT_TRUE(Copy(first, 2).ok());
  RunUploader other = Uploader(1, "another");
  const absl::Status refused = Copy(other, 4);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another run"));
  std::filesystem::remove(JoinPath(place_, "owner.json"));
  RunUploader third = Uploader(1);
  const absl::Status foreign = Copy(third, 4);
  EXPECT_TRUE(absl::IsFailedPrecondition(foreign)) << foreign;
  EXPECT_THAT(*ListCommits(store_), ElementsAre(2));
}

// The machine of the first run was lost, and the new run has another id.
TEST_F(RunUploaderTest, ThePlaceOfARunWithoutACommitIsTakenOver) {
  RunUploader lost = Uploader(1);
  ASSERT_TRUE(lost.Open().ok());
  RunUploader other = Uploader(1, "another");
  const absl::Status copied = Copy(other, 4);
  EXPECT_TRUE(copied.ok()) << copied;
  EXPECT_EQ(ReadCommit(store_, 4).value().run_id, "another");
  // The first run may still exist.
  EXPECT_TRUE(absl::IsFailedPrecondition(Copy(lost, 2)));
  EXPECT_THAT(*ListCommits(store_), ElementsAre(4));
}

TEST_F(RunUploaderTest, TheProcessThatBeganLastGoesOn) {
  RunUploader first = Uploader(1);
  ASSERT_TRUE(Copy(first, 2).ok());
  RunUploader second = Uploader(1);
  ASSERT_TRUE(second.Open().ok());
  const absl::Status over = Copy(first, 4);
  EXPECT_TRUE(absl::IsAborted(over)) << over;
  EXPECT_TRUE(Copy(second, 4).ok());
}

}  // namespace
}  // namespace dapd
