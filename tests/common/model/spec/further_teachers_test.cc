#include "common/model/spec/further_teachers.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kModel = R"({
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
    "hidden_act": "silu", "vocab_size": 96, "hidden_size": 48,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true,
    "attention_bias": false, "eos_token_id": 1, "torch_dtype": "float32"})";

class FurtherTeachersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(folder_).ok());
    ASSERT_TRUE(
        WriteFileAtomically(JoinPath(folder_, "config.json"), kModel).ok());
    config_.model.path = "the student";
    config_.objective.preset = "opsd";
    config_.objective.teacher_weights.names = {"big"};
    config_.teachers = {{.name = "unread", .path = "/nowhere"},
                        {.name = "big",
                         .path = folder_,
                         .listen = "127.0.0.1:9",
                         .workers = 2}};
  }

  const std::string folder_ = TempPath("teacher");
  Config config_;
};

TEST_F(FurtherTeachersTest, OnlyTeachersThatTermsReadAreLookedUp) {
  const auto teachers = FindFurtherTeachers(config_);
  ASSERT_TRUE(teachers.ok()) << teachers.status();
  ASSERT_EQ(teachers->size(), 1U);
  EXPECT_EQ(teachers->front().name(), "big");
  EXPECT_EQ(teachers->front().folder, folder_);
  EXPECT_EQ(teachers->front().model.hidden_size, 48);
  EXPECT_EQ(NumFurtherWorkers(config_), 2);
  EXPECT_EQ(CommonVocabulary(100, *teachers), 96);
  EXPECT_EQ(CommonVocabulary(90, *teachers), 90);
  EXPECT_EQ(CommonPositions(1000, *teachers), 64);
  config_.objective.teacher_weights.names = {"base"};
  EXPECT_TRUE(FindFurtherTeachers(config_)->empty());
  EXPECT_EQ(NumFurtherWorkers(config_), 0);
}

TEST_F(FurtherTeachersTest, AMissingFolderNamesTheTeacher) {
  config_.teachers[1].path = "/nowhere/model";
  const absl::Status model = FindFurtherTeachers(config_).status();
  EXPECT_EQ(ExitCodeOf(model), ExitCode::kData) << model;
  EXPECT_THAT(std::string(model.message()),
              AllOf(HasSubstr("teachers: 'big': "), HasSubstr("/nowhere")));
  config_.teachers[1].path = folder_;
  config_.teachers[1].adapter = "/nowhere/adapter";
  const absl::Status adapter = FindFurtherTeachers(config_).status();
  EXPECT_EQ(ExitCodeOf(adapter), ExitCode::kData) << adapter;
  EXPECT_THAT(
      std::string(adapter.message()),
      AllOf(HasSubstr("teachers: 'big': "), HasSubstr("/nowhere/adapter")));
}

TEST_F(FurtherTeachersTest, AnAdapterHasTheShapeThatItsFileSays) {
  EXPECT_FALSE(FindFurtherTeachers(config_)->front().lora.has_value());
  const std::string adapter = TempPath("teachers_adapter");
  ASSERT_TRUE(MakeDirectories(adapter).ok());
  const std::string file = JoinPath(adapter, "adapter_config.json");
  ASSERT_TRUE(WriteFileAtomically(
                  file,
                  FormatLoraConfig({.rank = 5, .targets = {"q_proj", "k_proj"}},
                                   "base"))
                  .ok());
  // An adapter's folder is known by its weights.
  ASSERT_TRUE(
      WriteFileAtomically(JoinPath(adapter, "adapter_model.safetensors"), "")
          .ok());
  config_.teachers[1].adapter = adapter;
  const auto teachers = FindFurtherTeachers(config_);
  ASSERT_TRUE(teachers.ok()) << teachers.status();
  EXPECT_EQ(teachers->front().lora->rank, 5);
  EXPECT_EQ(teachers->front().lora->targets,
            (std::vector<std::string>{"q_proj", "k_proj"}));
  EXPECT_EQ(teachers->front().NumAdapterParameters(),
            2 * 5 * ((48 + 64) + (48 + 32)));
  ASSERT_TRUE(WriteFileAtomically(file, R"({"peft_type": "PREFIX"})").ok());
  const absl::Status other = FindFurtherTeachers(config_).status();
  EXPECT_EQ(ExitCodeOf(other), ExitCode::kData) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("teachers: 'big': "));
}

TEST_F(FurtherTeachersTest, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(FindFurtherTeacher(config_, "big")->folder, folder_);
  const absl::Status status = FindFurtherTeacher(config_, "bigg").status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("no teacher 'bigg'"), HasSubstr("'unread', 'big'")));
}

TEST_F(FurtherTeachersTest, AWorkerHasItsModelAndItsAddresses) {
  LoadedConfig loaded{.config = config_,
                      .origins = {{"teacher.listen", "default"},
                                  {"metrics.teacher_listen", "run.yaml:3"}}};
  const FurtherTeacher teacher = *FindFurtherTeacher(config_, "big");
  const Config own = ConfigOfTeacher(loaded, teacher);
  EXPECT_EQ(own.model.path, folder_);
  EXPECT_EQ(own.teacher.listen, "127.0.0.1:9");
  EXPECT_EQ(own.metrics.teacher_listen, "");
  loaded.origins["teacher.listen"] = "environment";
  loaded.origins["metrics.teacher_listen"] = "--set";
  loaded.config.teacher.listen = "0.0.0.0:7002";
  loaded.config.metrics.teacher_listen = "0.0.0.0:9102";
  const Config here = ConfigOfTeacher(loaded, teacher);
  EXPECT_EQ(here.teacher.listen, "0.0.0.0:7002");
  EXPECT_EQ(here.metrics.teacher_listen, "0.0.0.0:9102");
}

}  // namespace
}  // namespace dapd
