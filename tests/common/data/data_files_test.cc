#include "common/data/data_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/data/dataset.h"
#include "tests/fakes/closed_path.h"
#include "tests/fakes/hub_cache.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class FindDataFilesTest : public ::testing::Test {
 protected:
  FindDataFilesTest() : folder_(TempPath("data")) {}

  void Add(const std::string& name, const std::string& bytes = "") const {
    FakeHubCache::Write(folder_ + "/" + name, bytes);
  }
  // Returns names relative to the folder.
  std::vector<std::string> Find(const std::string& path) const {
    return Find(path, SplitRule::kTrain);
  }
  std::vector<std::string> Find(const std::string& path, SplitRule rule) const {
    const auto files = FindDataFiles(path, rule);
    EXPECT_TRUE(files.ok()) << files.status();
    std::vector<std::string> names;
    for (const std::string& file : files.value_or(std::vector<std::string>())) {
      names.push_back(std::filesystem::relative(file, folder_));
    }
    return names;
  }
  static std::string Problem(const std::string& path,
                             SplitRule rule = SplitRule::kTrain) {
    const absl::Status status = FindDataFiles(path, rule).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
    return std::string(status.message());
  }

  const std::string folder_;
};

TEST_F(FindDataFilesTest, AFileThatNobodyMayLookForIsNotCalledMissing) {
  Add("closed/a.parquet");
  const ClosedPath closed(folder_ + "/closed");
  EXPECT_THAT(Problem(folder_ + "/closed/a.parquet"),
              HasSubstr("Permission denied"));
}

TEST_F(FindDataFilesTest, AFolderStandsForItsFilesInTheOrderOfTheirBytes) {
  Add("b.parquet");
  Add("a/2.parquet");
  Add("a/10.parquet");
  Add("README.md");
  Add("dataset_infos.json");
  Add(".cache/x.parquet");
  EXPECT_THAT(Find(folder_),
              ElementsAre("a/10.parquet", "a/2.parquet", "b.parquet"));
  EXPECT_THAT(Find(folder_ + "/dataset_infos.json"),
              ElementsAre("dataset_infos.json"));
}

TEST_F(FindDataFilesTest, AGlobStandsForItsMatches) {
  Add("x-2.jsonl");
  Add("x-1.jsonl.gz");
  Add("test.jsonl");
  EXPECT_THAT(Find(folder_ + "/x-*.jsonl*"),
              ElementsAre("x-1.jsonl.gz", "x-2.jsonl"));
  EXPECT_THAT(Problem(folder_ + "/y-*.jsonl"), HasSubstr("as a glob"));
  Add("x-3.txt");
  EXPECT_THAT(Problem(folder_ + "/x-*"), HasSubstr("x-3.txt"));
}

TEST_F(FindDataFilesTest, AFileNamedLikeAGlobIsThatFile) {
  Add("a[1].jsonl");
  EXPECT_THAT(Find(folder_ + "/a[1].jsonl"), ElementsAre("a[1].jsonl"));
}

TEST_F(FindDataFilesTest, ThePartsOfADataSetAreChosenByName) {
  Add("train-00000-of-00001.parquet");
  Add("test-00000-of-00001.parquet");
  EXPECT_THAT(Find(folder_), ElementsAre("train-00000-of-00001.parquet"));
  EXPECT_THAT(Find(folder_ + "#:test"),
              ElementsAre("test-00000-of-00001.parquet"));
  EXPECT_THAT(Find(folder_ + "#default:test", SplitRule::kNamed),
              ElementsAre("test-00000-of-00001.parquet"));
  EXPECT_THAT(Problem(folder_, SplitRule::kNamed),
              AllOf(HasSubstr("several splits (train: train-00000-of-00001"),
                    HasSubstr(folder_ + "#:test"),
                    HasSubstr("glob")));
  EXPECT_THAT(Problem(folder_ + "#:validation"),
              AllOf(HasSubstr("no split 'validation'"), HasSubstr("test: ")));
  EXPECT_THAT(Problem(folder_ + "#en"), HasSubstr("no configuration 'en'"));
  EXPECT_THAT(Problem(folder_ + "/train-00000-of-00001.parquet#:test"),
              HasSubstr("only a folder or an id"));
}

TEST_F(FindDataFilesTest, AnAmbiguousFolderIsNotGuessedAt) {
  Add("train-0.parquet");
  Add("train-1.jsonl");
  EXPECT_THAT(Problem(folder_), HasSubstr("Parquet and JSON Lines files"));
  EXPECT_THAT(Find(folder_ + "/*.parquet"), ElementsAre("train-0.parquet"));
  std::filesystem::remove(folder_ + "/train-1.jsonl");
  Add("train.json");
  EXPECT_THAT(Find(folder_), ElementsAre("train-0.parquet"));
  Add("train.csv.bz2");
  EXPECT_THAT(Problem(folder_), HasSubstr("Parquet and compressed files"));
  std::filesystem::remove(folder_ + "/train.csv.bz2");
  Add("train-2.json");
  EXPECT_THAT(Problem(folder_), HasSubstr("Parquet and JSON files"));
}

TEST_F(FindDataFilesTest, AFileNamedLikeAChoiceIsThatFile) {
  Add("a#b.jsonl");
  EXPECT_THAT(Find(folder_ + "/a#b.jsonl"), ElementsAre("a#b.jsonl"));
  EXPECT_THAT(Find(folder_ + "/a#*.jsonl"), ElementsAre("a#b.jsonl"));
}

TEST_F(FindDataFilesTest, HeldOutProblemsAreASplit) {
  Add("sum/train-1000.jsonl");
  Add("sum/held_out-100.jsonl");
  EXPECT_THAT(Problem(folder_, SplitRule::kNamed),
              HasSubstr("held_out: sum/held_out-100.jsonl"));
  EXPECT_THAT(Find(folder_), ElementsAre("sum/train-1000.jsonl"));
  EXPECT_THAT(Find(folder_ + "#:held_out"),
              ElementsAre("sum/held_out-100.jsonl"));
  std::filesystem::rename(folder_ + "/sum/train-1000.jsonl",
                          folder_ + "/sum/1000.jsonl");
  EXPECT_THAT(Find(folder_), ElementsAre("sum/1000.jsonl"));
}

TEST_F(FindDataFilesTest, TheCardOfAnIdIsRead) {
  const FakeHubCache cache;
  const std::string repository = "datasets--org--math";
  cache.AddRef(repository, "main");
  const std::string card =
      "---\nconfigs:\n- config_name: en\n  data_files: en.jsonl\n"
      "- config_name: fr\n  data_files: fr.jsonl\n---\n";
  cache.AddFile(repository, "README.md", card);
  cache.AddFile(repository, "en.jsonl", "{}");
  cache.AddFile(repository, "fr.jsonl", "{}");
  EXPECT_THAT(Problem("org/math"),
              AllOf(HasSubstr("(en, fr)"), HasSubstr("org/math#en")));
  EXPECT_THAT(*FindDataFiles("org/math@main#fr"),
              ElementsAre(cache.Snapshot(repository) + "/fr.jsonl"));
  EXPECT_THAT(Problem("org/math:*.jsonl#fr"), HasSubstr("only a folder"));
  // The card alone says which configurations exist.
  cache.AddList(repository, {{"README.md", card.size() + 1}, {"en.jsonl", 2}});
  EXPECT_THAT(Problem("org/math#en"),
              AllOf(HasSubstr("README.md has"), HasSubstr("deploy/fetch.sh")));
}

TEST_F(FindDataFilesTest, AUrlIsNoId) {
  for (const std::string path :
       {"s3://bucket/problems.jsonl", "https://example.org/problems.jsonl"}) {
    EXPECT_THAT(Problem(path),
                AllOf(HasSubstr("there is no data file " + path),
                      Not(HasSubstr("fetch.sh"))));
  }
}

TEST_F(FindDataFilesTest, AShardThatItsSiblingsPromiseIsMissed) {
  Add("train-00000-of-00003.parquet");
  Add("train-00002-of-00003.parquet");
  EXPECT_THAT(Problem(folder_),
              HasSubstr("lacks the shard train-00001-of-00003.parquet"));
  Add("train-00001-of-00003.parquet");
  EXPECT_EQ(Find(folder_).size(), 3u);
}

TEST_F(FindDataFilesTest, AFolderWithoutDataSaysSo) {
  Add("README.md");
  EXPECT_THAT(Problem(folder_), HasSubstr("holds no .parquet"));
  EXPECT_THAT(Problem(folder_ + "/README.md"), HasSubstr(".parquet"));
  EXPECT_EQ(Problem(folder_ + "/none.jsonl"),
            "there is no data file " + folder_ + "/none.jsonl");
}

TEST_F(FindDataFilesTest, AnIdIsFoundInTheCache) {
  const FakeHubCache cache;
  const std::string repository = "datasets--org--math";
  cache.AddRef(repository, "main");
  cache.AddFile(repository, "data/train-00000-of-00001.parquet", "t");
  const std::string train =
      cache.Snapshot(repository) + "/data/train-00000-of-00001.parquet";
  EXPECT_THAT(*FindDataFiles("org/math"), ElementsAre(train));
  cache.AddFile(repository, "data/test-00000-of-00001.parquet", "t");
  EXPECT_THAT(*FindDataFiles("org/math@main"), ElementsAre(train));
  EXPECT_THAT(Problem("org/math@main", SplitRule::kNamed),
              HasSubstr("several splits"));
  EXPECT_THAT(*FindDataFiles("org/math@main:data/train-*"), ElementsAre(train));
  EXPECT_THAT(Problem("org/math:*.parquet"),
              AllOf(HasSubstr("no data file *.parquet"),
                    HasSubstr("data/test-00000-of-00001.parquet")));
  EXPECT_THAT(Problem("org/none"), HasSubstr("deploy/fetch.sh data org/none"));
}

TEST_F(FindDataFilesTest, HalfADownloadIsOneError) {
  const FakeHubCache cache;
  const std::string repository = "datasets--org--math";
  cache.AddRef(repository, "main");
  cache.AddFile(repository, "train-00000-of-00002.jsonl", "{}");
  EXPECT_THAT(Problem("org/math"),
              AllOf(HasSubstr("train-00001-of-00002.jsonl is missing"),
                    HasSubstr("deploy/fetch.sh data org/math")));
  const std::string blob =
      cache.AddFile(repository, "train-00001-of-00002.jsonl", "{}");
  EXPECT_EQ(FindDataFiles("org/math")->size(), 2u);
  cache.AddIncomplete(repository);
  EXPECT_THAT(Problem("org/math"), HasSubstr(".incomplete"));
  cache.AddList(
      repository,
      {{"train-00000-of-00002.jsonl", 2}, {"train-00001-of-00002.jsonl", 2}});
  EXPECT_EQ(FindDataFiles("org/math")->size(), 2u);
  std::filesystem::remove(blob);
  EXPECT_THAT(Problem("org/math"), HasSubstr("a link to a file"));
}

TEST_F(FindDataFilesTest, RowsOfAllFilesMakeOneDataSet) {
  Add("a.jsonl", "{\"problem\": \"1\", \"solution\": \"s\"}\n");
  Add("b.jsonl",
      "{\"problem\": \"2\", \"solution\": \"s\"}\n"
      "{\"problem\": \"3\", \"solution\": \"s\"}\n");
  const auto all = ReadDataset(folder_, {});
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->problems.size(), 3u);
  EXPECT_EQ(all->problems[2].id, "2");
  EXPECT_EQ(all->problems[2].where, folder_ + "/b.jsonl:2");
  EXPECT_EQ(all->digest, DigestOf(all->problems));
  EXPECT_NE(all->digest, ReadDataset(folder_ + "/a.jsonl", {})->digest);
}

}  // namespace
}  // namespace dapd
