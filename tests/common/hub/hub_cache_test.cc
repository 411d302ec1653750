#include "common/hub/hub_cache.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/closed_path.h"
#include "tests/fakes/hub_cache.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const HubId kId = {"org/small", ""};

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(HubCacheFolderTest, TheVariablesCountInTheOrderOfHuggingfaceHub) {
  for (const char* name :
       {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) {
    ::unsetenv(name);
  }
  const std::string home = TempPath("home");
  ::setenv("HOME", home.c_str(), 1);
  EXPECT_EQ(HubCacheFolder(), home + "/.cache/huggingface/hub");
  ::unsetenv("HOME");
  EXPECT_EQ(HubCacheFolder(),
            JoinPath(::getpwuid(::getuid())->pw_dir, ".cache/huggingface/hub"));
  ::setenv("HOME", home.c_str(), 1);
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(HubCacheFolder(), "/cache/huggingface/hub");
  ::setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(HubCacheFolder(), home + "/hf/hub");
  ::setenv("SCRATCH", "/scratch", 1);
  ::setenv("HF_HUB_CACHE", "${SCRATCH}/a$SCRATCH/$NOT_SET", 1);
  EXPECT_EQ(HubCacheFolder(), "/scratch/a/scratch/$NOT_SET");
}

TEST(FindSnapshotTest, ACacheThatMayNotBeEnteredIsNotCalledEmpty) {
  const FakeHubCache cache;
  cache.AddRef(FakeHubCache::kRepository, "main");
  const ClosedPath closed(HubCacheFolder());
  const absl::Status status = FindSnapshot(HubKind::kModel, kId).status();
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
}

TEST(FindSnapshotTest, ARevisionLeadsToItsCommit) {
  const FakeHubCache cache;
  cache.AddRef(FakeHubCache::kRepository, "main");
  cache.AddRef(FakeHubCache::kRepository, "refs/pr/1");
  cache.AddFile(FakeHubCache::kRepository, "config.json", "{}");
  for (const char* revision : {"", "main", "refs/pr/1", cache.kCommit}) {
    const auto found = FindSnapshot(HubKind::kModel, {"org/small", revision});
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->folder, cache.Snapshot(FakeHubCache::kRepository));
    EXPECT_EQ(found->commit, cache.kCommit);
  }
  // A data set with the same name is another repository.
  EXPECT_TRUE(absl::IsNotFound(FindSnapshot(HubKind::kDataset, kId).status()));
}

TEST(FindSnapshotTest, WhatIsNotThereComesWithTheCommandThatDownloadsIt) {
  const FakeHubCache cache;
  const absl::Status none = FindSnapshot(HubKind::kModel, kId).status();
  EXPECT_EQ(ExitCodeOf(none), ExitCode::kData);
  EXPECT_THAT(Message(none),
              AllOf(HasSubstr(cache.path()),
                    HasSubstr("download it with: deploy/fetch.sh model "
                              "org/small")));
  cache.AddRef(FakeHubCache::kRepository, "main");
  cache.AddFile(FakeHubCache::kRepository, "config.json", "{}");
  const absl::Status other =
      FindSnapshot(HubKind::kModel, {"org/small", "v2"}).status();
  EXPECT_TRUE(absl::IsNotFound(other)) << other;
  EXPECT_THAT(Message(other),
              AllOf(HasSubstr("no revision v2 (available: main)"),
                    HasSubstr("deploy/fetch.sh model org/small@v2")));
}

TEST(FindSnapshotTest, HalfADownloadIsOneError) {
  const FakeHubCache cache;
  cache.AddRef(FakeHubCache::kRepository, "main");
  const absl::Status empty = FindSnapshot(HubKind::kModel, kId).status();
  EXPECT_EQ(ExitCodeOf(empty), ExitCode::kData);
  EXPECT_THAT(Message(empty),
              AllOf(HasSubstr("only partly"),
                    HasSubstr("deploy/fetch.sh model org/small")));
  cache.AddRef(FakeHubCache::kRepository, "main", "not a commit\n");
  EXPECT_THAT(Message(FindSnapshot(HubKind::kModel, kId).status()),
              HasSubstr("refs/main"));
}

TEST(FindSnapshotTest, FilesAreComparedWithTheHubsList) {
  const FakeHubCache cache;
  cache.AddRef(FakeHubCache::kRepository, "main");
  const std::string blob =
      cache.AddFile(FakeHubCache::kRepository, "config.json", "{}");
  cache.AddList(FakeHubCache::kRepository,
                {{"config.json", 2}, {"model.safetensors", 9}});
  auto snapshot = FindSnapshot(HubKind::kModel, kId);
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  ASSERT_TRUE(snapshot->listed.has_value());
  const auto check = [&](const std::string& file) {
    return CheckFile(HubKind::kModel, kId, *snapshot, file);
  };
  EXPECT_TRUE(check("config.json").ok());
  EXPECT_TRUE(check("not/on/the/hub.json").ok());
  EXPECT_THAT(Message(check("model.safetensors")),
              HasSubstr("model.safetensors is missing"));
  FakeHubCache::Write(blob, "{ }");
  EXPECT_THAT(Message(check("config.json")),
              HasSubstr("has 3 bytes, but the hub's file has 2"));
  std::filesystem::remove(blob);
  EXPECT_THAT(Message(check("config.json")),
              HasSubstr("a link to a file that does not exist"));
}

TEST(FindSnapshotTest, AListThatCannotBeReadIsNone) {
  const FakeHubCache cache;
  cache.AddRef(FakeHubCache::kRepository, "main");
  cache.AddFile(FakeHubCache::kRepository, "config.json", "{}");
  const std::string list = cache.path() + "/" + FakeHubCache::kRepository +
                           "/trees/" + std::string(cache.kCommit) + ".json";
  for (const char* text :
       {"{",
        "[]",
        "{\"format_version\": 2, \"files\": {}}",
        "{\"format_version\": 1, \"files\": {\"a\": {\"size\": -1}}}"}) {
    FakeHubCache::Write(list, text);
    const auto snapshot = FindSnapshot(HubKind::kModel, kId);
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_FALSE(snapshot->listed.has_value()) << text;
  }
}

}  // namespace
}  // namespace dapd
