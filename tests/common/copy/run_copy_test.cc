#include "common/copy/run_copy.h"

#include <string>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

const std::string kDigest(64, 'a');

RunCopy Example() {
  return {
      .step = 50,
      .run_id = "0123",
      .files = {{"metrics.jsonl", {{10, kDigest}, {5, std::string(64, 'b')}}},
                {"checkpoints/step-000050/manifest.json", {{7, kDigest}}},
                {"empty", {}}}};
}

TEST(RunCopyTest, ACommitIsReadAsItWasWritten) {
  const auto copy = ParseCommit(CommitText(Example()), "x");
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_EQ(*copy, Example());
  EXPECT_EQ(BytesOf(*copy), 22);
}

TEST(RunCopyTest, ACommitThatWasCutOffAnywhereIsDamaged) {
  const std::string text = CommitText(Example());
  for (size_t size = 0; size < text.size(); ++size) {
    const auto copy = ParseCommit(text.substr(0, size), "x");
    EXPECT_TRUE(absl::IsDataLoss(copy.status())) << size;
  }
}

TEST(RunCopyTest, ACommitWithAnyBitFlippedIsDamaged) {
  const std::string text = CommitText(Example());
  for (size_t i = 0; i < text.size() * 8; ++i) {
    std::string flipped = text;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << (i % 8)));
    EXPECT_TRUE(absl::IsDataLoss(ParseCommit(flipped, "x").status())) << i;
  }
}

TEST(RunCopyTest, PathsThatLeadElsewhereAreRefused) {
  for (const char* path : {"../x", "/etc/x", "a//b", "a/../b", "", ".lock"}) {
    RunCopy copy = Example();
    copy.files[path] = {{1, kDigest}};
    const auto read = ParseCommit(CommitText(copy), "x");
    EXPECT_TRUE(absl::IsDataLoss(read.status())) << path;
  }
}

TEST(RunCopyTest, PartsThatCannotBeAreRefused) {
  for (const Content& part : {Content{0, kDigest},
                              Content{-1, kDigest},
                              Content{1, "A" + kDigest.substr(1)},
                              Content{1, "../" + kDigest.substr(3)}}) {
    RunCopy copy = Example();
    copy.files["x"] = {part};
    EXPECT_FALSE(ParseCommit(CommitText(copy), "x").ok()) << part.sha256;
  }
}

TEST(RunCopyTest, FilesWhoseSumIsNoNumberAreRefused) {
  constexpr int64_t kHalf = int64_t{1} << 62;
  RunCopy copy = Example();
  copy.files["x"] = {{kHalf, kDigest}};
  EXPECT_TRUE(ParseCommit(CommitText(copy), "x").ok());
  copy.files["y"] = {{kHalf, kDigest}};
  EXPECT_TRUE(absl::IsDataLoss(ParseCommit(CommitText(copy), "x").status()));
}

TEST(RunCopyTest, ACommitNamesTheSamplesOfEveryStepOfALongRun) {
  RunCopy copy = Example();
  copy.step = 100'000;
  for (int64_t step = 1; step <= copy.step; ++step) {
    copy.files[absl::StrFormat("samples/step-%06d.jsonl", step)] = {
        {1000, kDigest}};
  }
  const std::string folder = TempPath("store");
  ObjectStore store({.url = folder, .command = ObjectStoreCommand("", folder)});
  const absl::Status written =
      store.Write(CommitName(copy.step), CommitText(copy));
  ASSERT_TRUE(written.ok()) << written;
  const auto read = ReadCommit(store, copy.step);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == copy);
}

TEST(RunCopyTest, NamesOfCommitsAndObjectsAreThoseAndNoOthers) {
  EXPECT_EQ(CommitName(50), "commits/step-000050.json");
  EXPECT_EQ(StepOfCommit("commits/step-000050.json"), 50);
  EXPECT_EQ(StepOfCommit("commits/step-1000000.json"), 1000000);
  for (const char* name : {"commits/step-50.json",
                           "commits/step-000050.json.part",
                           "commits/step--00050.json",
                           "objects/step-000050.json",
                           "commits/step-.json"}) {
    EXPECT_FALSE(StepOfCommit(name).has_value()) << name;
  }
  EXPECT_TRUE(IsObjectName(ObjectName({1, kDigest})));
  EXPECT_FALSE(IsObjectName("objects/mine"));
}

TEST(RunCopyTest, AFolderKeepsItsId) {
  const std::string folder = TempPath("run");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  const auto id = RunId(folder);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->size(), 32U);
  EXPECT_EQ(*RunId(folder), *id);
  ASSERT_TRUE(WriteFileAtomically(folder + "/copy.json", "{}").ok());
  EXPECT_THAT(std::string(RunId(folder).status().message()),
              HasSubstr("does not say which run this is"));
}

}  // namespace
}  // namespace dapd
