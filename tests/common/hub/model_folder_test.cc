#include "common/hub/model_folder.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "tests/fakes/hub_cache.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Message(const absl::StatusOr<std::string>& found) {
  return std::string(found.status().message());
}

class FindModelFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cache_.AddRef(FakeHubCache::kRepository, "main");
    cache_.AddFile(FakeHubCache::kRepository, "config.json", "{}");
    cache_.AddFile(FakeHubCache::kRepository, "tokenizer.json", "{}");
  }
  void AddShards() {
    cache_.AddFile(FakeHubCache::kRepository,
                   "model.safetensors.index.json",
                   "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors"
                   "\", \"b\": \"model-00002-of-00002.safetensors\"}}");
    cache_.AddFile(
        FakeHubCache::kRepository, "model-00001-of-00002.safetensors", "1");
  }
  const FakeHubCache cache_;
};

TEST_F(FindModelFolderTest, AnIdIsFoundInTheCache) {
  cache_.AddFile(FakeHubCache::kRepository, "model.safetensors", "weights");
  for (const char* path : {"org/small", "org/small@main"}) {
    const auto found = FindModelFolder(path);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, cache_.Snapshot(FakeHubCache::kRepository));
  }
}

TEST_F(FindModelFolderTest, AnEmptyFolderIsNone) {
  const std::string path = TempPath("nothing-in-it");
  std::filesystem::create_directories(path);
  EXPECT_THAT(Message(FindModelFolder(path)),
              HasSubstr(path + " is an empty folder, with no model in it"));
  EXPECT_THAT(Message(FindAdapterFolder(path)),
              HasSubstr(path + " is an empty folder, with no adapter in it"));
  EXPECT_EQ(ExitCodeOf(FindModelFolder(path).status()), ExitCode::kData);
}

TEST_F(FindModelFolderTest, APathThatExistsWins) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(cache_.path());
  std::filesystem::create_directories("org/small/anything");
  EXPECT_EQ(FindModelFolder("org/small").value_or(""), "org/small");
  EXPECT_EQ(BaseModelName("org/small"), "org/small");
  std::filesystem::create_directories("org/small@v1");
  EXPECT_EQ(BaseModelName("org/small@v1"), "./org/small@v1");
  std::filesystem::current_path(before);
}

TEST_F(FindModelFolderTest, WhatIsNeitherIsSaidOnce) {
  const auto id = FindModelFolder("org/other@v1");
  EXPECT_EQ(ExitCodeOf(id.status()), ExitCode::kData);
  EXPECT_THAT(Message(id),
              AllOf(HasSubstr("there is no model folder org/other@v1"),
                    HasSubstr("deploy/fetch.sh model org/other@v1")));
  const auto path = FindModelFolder("/models/none");
  EXPECT_EQ(ExitCodeOf(path.status()), ExitCode::kData);
  EXPECT_THAT(Message(path),
              HasSubstr("there is no model folder /models/none"));
}

TEST_F(FindModelFolderTest, AModelThatAProgramMakesComesWithTheCommand) {
  // Here none of them has been made.
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(cache_.path());
  for (const std::string folder : {"", "/srv/dapd/"}) {
    const std::string path = folder + ".deps/models/laboratory-large";
    EXPECT_THAT(Message(FindModelFolder(path)),
                AllOf(HasSubstr("there is no model folder " + path +
                                "; make it in the repository with: "),
                      HasSubstr("pretrain_laboratory_model.py --size large")));
  }
  EXPECT_THAT(Message(FindModelFolder("/x.deps/models/laboratory-large")),
              HasSubstr("it cannot be an id"));
  std::filesystem::current_path(before);
}

TEST_F(FindModelFolderTest, EveryShardOfTheIndexHasToBeThere) {
  AddShards();
  const auto half = FindModelFolder("org/small");
  EXPECT_EQ(ExitCodeOf(half.status()), ExitCode::kData);
  EXPECT_THAT(Message(half),
              AllOf(HasSubstr("model-00002-of-00002.safetensors is missing"),
                    HasSubstr("deploy/fetch.sh model org/small")));
  cache_.AddFile(
      FakeHubCache::kRepository, "model-00002-of-00002.safetensors", "2");
  EXPECT_TRUE(FindModelFolder("org/small").ok());
}

TEST_F(FindModelFolderTest, OneFileNeedsNoShards) {
  AddShards();
  cache_.AddFile(FakeHubCache::kRepository, "model.safetensors", "weights");
  const auto found = FindModelFolder("org/small");
  EXPECT_TRUE(found.ok()) << found.status();
}

TEST_F(FindModelFolderTest, ALinkWithoutItsBlobIsHalfADownload) {
  std::filesystem::remove(cache_.AddFile(
      FakeHubCache::kRepository, "model.safetensors", "weights"));
  EXPECT_THAT(Message(FindModelFolder("org/small")),
              HasSubstr("a link to a file that does not exist"));
}

TEST_F(FindModelFolderTest, AnUnfinishedBlobCountsWhereNoListSaysOtherwise) {
  cache_.AddFile(FakeHubCache::kRepository, "model.safetensors", "weights");
  cache_.AddIncomplete(FakeHubCache::kRepository);
  EXPECT_THAT(Message(FindModelFolder("org/small")), HasSubstr(".incomplete"));
  cache_.AddList(FakeHubCache::kRepository,
                 {{"config.json", 2},
                  {"tokenizer.json", 2},
                  {"model.safetensors", 7},
                  {"README.md", 100}});
  EXPECT_TRUE(FindModelFolder("org/small").ok());
  // Sampling reads its end tokens from generation_config.json, so nobody must
  // overlook that this file is missing.
  cache_.AddList(FakeHubCache::kRepository,
                 {{"config.json", 2},
                  {"tokenizer.json", 2},
                  {"model.safetensors", 7},
                  {"generation_config.json", 30}});
  EXPECT_THAT(Message(FindModelFolder("org/small")),
              HasSubstr("generation_config.json is missing"));
}

TEST_F(FindModelFolderTest, AnAdapterIsFoundByItsOwnFiles) {
  cache_.AddRef("models--org--adapter", "main");
  cache_.AddFile("models--org--adapter", "adapter_config.json", "{}");
  EXPECT_THAT(Message(FindAdapterFolder("org/adapter")),
              HasSubstr("adapter_model.safetensors is missing"));
  cache_.AddFile("models--org--adapter", "adapter_model.safetensors", "x");
  EXPECT_EQ(FindAdapterFolder("org/adapter").value_or(""),
            cache_.Snapshot("models--org--adapter"));
}

TEST_F(FindModelFolderTest, OfARunTheAdaptersFolderIsNamed) {
  const std::string run = TempPath("mine");
  std::filesystem::create_directories(run + "/adapter");
  EXPECT_EQ(FindAdapterFolder(run).value_or(""), run);
  std::ofstream(run + "/adapter/adapter_config.json") << "{}";
  const auto found = FindAdapterFolder(run);
  EXPECT_THAT(Message(found), HasSubstr("its adapter is " + run + "/adapter"));
  EXPECT_EQ(ExitCodeOf(found.status()), ExitCode::kData);
  EXPECT_EQ(FindAdapterFolder(run + "/adapter").value_or(""), run + "/adapter");
}

TEST_F(FindModelFolderTest, ABaseIsRecordedByItsId) {
  EXPECT_EQ(BaseModelName("org/small@main"), "org/small@main");
  EXPECT_EQ(BaseModelName(cache_.Snapshot(FakeHubCache::kRepository) + "/"),
            "org/small@" + std::string(FakeHubCache::kCommit));
  EXPECT_EQ(BaseModelName(cache_.path()), cache_.path());
}

TEST_F(FindModelFolderTest, ABaseInAFolderIsRecordedByTheIdThatItIsGiven) {
  EXPECT_EQ(BaseModelName(cache_.path(), "org/small@v1").value_or(""),
            "org/small@v1");
  EXPECT_EQ(BaseModelName(cache_.path(), "").value_or(""), cache_.path());
  for (const char* wrong : {"/models/small", "small models", "org/a/b"}) {
    const auto name = BaseModelName(cache_.path(), wrong);
    EXPECT_EQ(ExitCodeOf(name.status()), ExitCode::kConfig) << wrong;
    EXPECT_THAT(std::string(name.status().message()),
                HasSubstr(absl::StrCat("model.name: '", wrong, "'")));
  }
}

}  // namespace
}  // namespace dapd
