#include "common/tensor/safetensors_folder.h"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/tensor/safetensors.h"
#include "tests/fakes/hostile_names.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// Makes a model folder with one shard, and beside it a file outside the model.
class SafetensorsFolderTest : public testing::Test {
 protected:
  SafetensorsFolderTest() : root_(TempPath("root")), model_(root_ + "/model") {
    EXPECT_TRUE(MakeDirectories(model_).ok());
    WriteShard(model_ + "/shard.safetensors");
    WriteShard(root_ + "/secret");
  }

  static void WriteShard(const std::string& path) {
    HostTensor tensor = HostTensor::Allocate(DType::kUInt8, {1}).value();
    tensor.data.get()[0] = 7;
    EXPECT_TRUE(WriteSafetensors(path, {{"weight", tensor}}, {}).ok());
  }

  // Opens the folder with an index that places the tensor in `shard`.
  absl::StatusOr<SafetensorsFolder> Open(const std::string& shard) {
    std::string text;
    for (const char c : shard) {
      const auto code = static_cast<unsigned char>(c);
      if (code < 32 || c == '"' || c == '\\') {
        absl::StrAppendFormat(&text, "\\u%04x", code);
      } else {
        text.push_back(c);
      }
    }
    EXPECT_TRUE(
        WriteFileAtomically(
            model_ + "/model.safetensors.index.json",
            absl::StrCat(R"({"weight_map": {"weight": ")", text, R"("}})"))
            .ok());
    return SafetensorsFolder::Open(model_);
  }

  const std::string root_;
  const std::string model_;
};

TEST_F(SafetensorsFolderTest, AShardOfTheFolderIsOpened) {
  const auto opened = Open("shard.safetensors");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->paths().at("weight"), model_ + "/shard.safetensors");
  EXPECT_EQ(opened->Read("weight")->bytes(), "\x07");
}

TEST_F(SafetensorsFolderTest, OneFileCountsBesideAnIndexThatItReplaced) {
  WriteShard(model_ + "/model.safetensors");
  const auto opened = Open("model-00001-of-00002.safetensors");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->paths().at("weight"), model_ + "/model.safetensors");
}

TEST_F(SafetensorsFolderTest, WeightsInAnotherFormAreRefusedWithTheWayOut) {
  std::filesystem::remove(model_ + "/shard.safetensors");
  WriteShard(model_ + "/pytorch_model.bin");
  const absl::Status status = SafetensorsFolder::Open(model_).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
  EXPECT_THAT(std::string(status.message()), HasSubstr("save_pretrained"));
}

TEST_F(SafetensorsFolderTest, AHalfDownloadNamesWhatIsMissing) {
  const auto lost = SafetensorsFolder::Open(model_).status();
  EXPECT_EQ(ExitCodeOf(lost), ExitCode::kData);
  EXPECT_THAT(std::string(lost.message()),
              HasSubstr("it has shard.safetensors, whose index is missing"));
  EXPECT_THAT(
      std::string(Open("model-00002-of-00002.safetensors").status().message()),
      HasSubstr("lists 1 file, of which 1 is not there: "
                "model-00002-of-00002.safetensors"));
}

TEST_F(SafetensorsFolderTest, NoNameLeadsOutOfTheFolder) {
  int refused = 0;
  std::vector<std::string> names = HostileNames();
  names.push_back(root_ + "/secret");
  names.push_back("../model/shard.safetensors");
  for (const std::string& name : names) {
    const auto opened = Open(name);
    EXPECT_FALSE(opened.ok()) << name;
    EXPECT_EQ(ExitCodeOf(opened.status()), ExitCode::kData) << name;
    refused += !opened.ok();
  }
  EXPECT_GE(refused, 50);
  RecordProperty("refused", refused);
}

TEST_F(SafetensorsFolderTest, AnIndexThatDisagreesWithItsShardsIsRefused) {
  ASSERT_TRUE(
      WriteFileAtomically(model_ + "/model.safetensors.index.json",
                          R"({"weight_map": {"other": "shard.safetensors"}})")
          .ok());
  EXPECT_THAT(std::string(SafetensorsFolder::Open(model_).status().message()),
              HasSubstr("does not have it"));
}

}  // namespace
}  // namespace dapd
