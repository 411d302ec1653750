#include "common/model/weights/merged_model.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/tensor/safetensors_folder.h"
#include "common/tensor/torch_bridge.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

constexpr char kChanged[] = "model.layers.0.self_attn.q_proj.weight";
constexpr char kOther[] = "model.layers.0.self_attn.k_proj.weight";
constexpr char kNorm[] = "model.norm.weight";

// Has a base of three tensors, and an adapter of rank 1 that adds 2 x 3 to
// every element of the first tensor.
class WriteMergedModelTest : public ::testing::Test {
 protected:
  WriteMergedModelTest() : folder_(TempPath("merge")) {}
  void SetUp() override {
    base_ = folder_ + "/base";
    output_ = folder_ + "/merged";
    ASSERT_TRUE(MakeDirectories(base_).ok());
    WriteBase(at::kFloat);
    for (const char* name : {"config.json",
                             "tokenizer.json",
                             "chat_template.jinja",
                             "pytorch_model.bin",
                             "README.md",
                             ".gitattributes"}) {
      ASSERT_TRUE(WriteFileAtomically(base_ + "/" + name, name).ok());
    }
    adapter_.config = {.rank = 1, .alpha = 2.0, .targets = {"q_proj"}};
    const ModelConfig model{.num_layers = 2};
    adapter_ = MakeEmptyAdapter(model, adapter_.config);
    adapter_.layers[0][0] = {at::ones({1, 4}), 3 * at::ones({2, 1})};
  }

  void WriteBase(at::ScalarType type) {
    NamedTensors tensors;
    float value = 1;
    for (const auto& [name, shape] :
         {std::pair(kChanged, std::vector<int64_t>{2, 4}),
          std::pair(kOther, std::vector<int64_t>{2, 4}),
          std::pair(kNorm, std::vector<int64_t>{4})}) {
      auto host = FromTorch(at::full(shape, value++, at::kFloat).to(type));
      ASSERT_TRUE(host.ok());
      tensors.emplace_back(name, *host);
    }
    ASSERT_TRUE(WriteSafetensors(
                    base_ + "/model.safetensors", tensors, {{"format", "pt"}})
                    .ok());
  }
  absl::StatusOr<MergedModel> Write(uint64_t max_shard_bytes = 1 << 20) {
    return WriteMergedModel(base_, adapter_, output_, max_shard_bytes);
  }
  at::Tensor Merged(const std::string& name) {
    const auto folder = SafetensorsFolder::Open(output_);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return ToTorch(*folder->Read(name)).clone();
  }

  const std::string folder_;
  std::string base_;
  std::string output_;
  Adapter adapter_;
};

TEST_F(WriteMergedModelTest, TheUpdateIsAddedWhereTheAdapterSays) {
  const auto merged = Write();
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->modules, 1);
  EXPECT_EQ(merged->shards, 1);
  EXPECT_TRUE(at::equal(Merged(kChanged), at::full({2, 4}, 1.0F + 2 * 3)));
  EXPECT_TRUE(at::equal(Merged(kOther), at::full({2, 4}, 2.0F)));
  EXPECT_TRUE(at::equal(Merged(kNorm), at::full({4}, 3.0F)));
}

TEST_F(WriteMergedModelTest, FilesThatDescribeTheModelComeAlong) {
  ASSERT_TRUE(Write().ok());
  for (const char* name :
       {"config.json", "tokenizer.json", "chat_template.jinja"}) {
    EXPECT_EQ(ReadFile(output_ + "/" + name, 100).value_or(""), name);
  }
  for (const char* name : {"pytorch_model.bin",
                           "README.md",
                           ".gitattributes",
                           "model.safetensors.index.json"}) {
    EXPECT_FALSE(FileExists(output_ + "/" + name)) << name;
  }
}

TEST_F(WriteMergedModelTest, ShardsHaveAnIndexThatNamesThemAll) {
  const auto merged = Write(/*max_shard_bytes=*/50);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->shards, 2);
  EXPECT_TRUE(FileExists(output_ + "/model-00001-of-00002.safetensors"));
  // Opening compares the index with the shards.
  EXPECT_TRUE(at::equal(Merged(kChanged), at::full({2, 4}, 7.0F)));
  std::filesystem::remove_all(output_);
  // A tensor that is larger than the limit of a shard has its own shard.
  const auto each = Write(/*max_shard_bytes=*/1);
  ASSERT_TRUE(each.ok()) << each.status();
  EXPECT_EQ(each->shards, 3);
}

TEST_F(WriteMergedModelTest, TheBasesPrecisionStays) {
  WriteBase(at::kBFloat16);
  ASSERT_TRUE(Write().ok());
  EXPECT_EQ(Merged(kChanged).scalar_type(), at::kBFloat16);
  EXPECT_TRUE(
      at::equal(Merged(kChanged), at::full({2, 4}, 7.0F).to(at::kBFloat16)));
}

TEST_F(WriteMergedModelTest, WhatIsThereIsNotOverwritten) {
  ASSERT_TRUE(MakeDirectories(output_).ok());
  ASSERT_TRUE(WriteFileAtomically(output_ + "/mine", "x").ok());
  const absl::Status status = Write().status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  EXPECT_TRUE(FileExists(output_ + "/mine"));
  std::filesystem::remove(output_ + "/mine");
  output_ += "/";
  EXPECT_TRUE(Write().ok());
}

TEST_F(WriteMergedModelTest, AFailureLeavesNothingBehind) {
  adapter_.layers[0][0].b = 3e38 * at::ones({2, 1});
  EXPECT_THAT(std::string(Write().status().message()),
              HasSubstr("not finite in float32"));
  adapter_.layers[0][0].b = at::ones({3, 1});
  const absl::Status shape = Write().status();
  EXPECT_EQ(ExitCodeOf(shape), ExitCode::kData);
  EXPECT_THAT(std::string(shape.message()), HasSubstr(kChanged));
  adapter_.layers[1][0] = {at::ones({1, 4}), at::ones({2, 1})};
  adapter_.layers[0][0] = {};
  EXPECT_THAT(std::string(Write().status().message()),
              HasSubstr("has no 'model.layers.1"));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().filename(), "base");
    ++files;
  }
  EXPECT_EQ(files, 1);
}

}  // namespace
}  // namespace dapd
