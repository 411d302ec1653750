#include "services/cli/sweep/sweep_plan.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/thread_share.h"
#include "common/tensor/safetensors.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ReadSweepTest : public ::testing::Test {
 protected:
  ReadSweepTest() : folder_(TempPath("sweep")) {}
  void SetUp() override {
    Write("model/config.json", R"({
      "model_type": "qwen3", "hidden_act": "silu", "vocab_size": 96,
      "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
      "rope_theta": 10000.0, "tie_word_embeddings": true, "eos_token_id": 1})");
    Write("config.yaml",
          "model: {path: " + folder_ + "/model, device: cpu}\n" +
              "data: {path: data.jsonl}\n" + "run: {output_dir: " + folder_ +
              "/runs, seed: 7}\n" + "trainer: {steps: 3}\n");
  }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ + "/" + name;
    ASSERT_TRUE(MakeDirectories(path.parent_path()).ok());
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
  }
  absl::StatusOr<SweepPlan> Read(
      const std::string& text,
      const std::vector<std::string>& overrides = {}) const {
    Write("sweep.yaml",
          "name: s\nconfig: " + folder_ + "/config.yaml\n" + text);
    return ReadSweep(folder_ + "/sweep.yaml", overrides);
  }
  std::string Problem(const std::string& text,
                      const std::vector<std::string>& overrides = {}) const {
    const absl::Status status = Read(text, overrides).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig) << status;
    return std::string(status.message());
  }
  static std::vector<std::string> Names(const SweepPlan& plan) {
    std::vector<std::string> names;
    for (const SweepRun& run : plan.runs) names.push_back(run.name);
    return names;
  }

  const std::string folder_;
};

TEST_F(ReadSweepTest, AGridIsEveryCombinationWithEverySeed) {
  const auto plan = Read(
      "set: {trainer.steps: 5}\n"
      "grid:\n  trainer.learning_rate: [1.0e-4, 5.0e-4]\n"
      "  objective.component_clip: [0.05]\nseeds: [1, 2]\n");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(Names(*plan),
              ElementsAre("learning_rate-1.0e-4-component_clip-0.05-seed-1",
                          "learning_rate-1.0e-4-component_clip-0.05-seed-2",
                          "learning_rate-5.0e-4-component_clip-0.05-seed-1",
                          "learning_rate-5.0e-4-component_clip-0.05-seed-2"));
  const Config& last = plan->runs[3].config;
  EXPECT_EQ(last.trainer.learning_rate, 5e-4);
  EXPECT_EQ(last.trainer.steps, 5);
  EXPECT_EQ(last.run.seed, 2u);
  EXPECT_EQ(last.run.output_dir, folder_ + "/runs/s");
  EXPECT_EQ(last.checkpoint.copy_to, "");
  EXPECT_EQ(plan->runs[3].folder, folder_ + "/runs/s/" + plan->runs[3].name);
  EXPECT_EQ(plan->parallel, 1);
}

TEST_F(ReadSweepTest, SweepsWhoseRunsHaveTheSameNamesAreCopiedBesideEachOther) {
  const auto plan =
      Read("seeds: [1, 2]\nset: {checkpoint.copy_to: 's3://bucket/all/'}\n");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->runs[1].config.checkpoint.copy_to, "s3://bucket/all/s");
}

TEST_F(ReadSweepTest, TheRunsLieInFoldersOfAnyName) {
  const std::string runs = folder_ + "/my runs #2: [a]";
  const auto plan = Read("list: [{name: 'null'}]\nset:\n  run.output_dir: \"" +
                         runs + "\"\n  checkpoint.copy_to: \"[copies]\"\n");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const SweepRun& run = plan->runs[0];
  EXPECT_EQ(run.folder, runs + "/s/null");
  EXPECT_EQ(run.config.run.output_dir, runs + "/s");
  EXPECT_EQ(run.config.run.name, "null");
  EXPECT_EQ(run.config.checkpoint.copy_to, "[copies]/s");
}

TEST_F(ReadSweepTest, AListIsOneByOneAndTheCommandLineWins) {
  const auto plan = Read(
      "list:\n  - {name: base}\n"
      "  - {name: other, set: {trainer.steps: 9, lora.targets: [q_proj]}}\n",
      {"trainer.steps=4"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(Names(*plan), ElementsAre("base", "other"));
  EXPECT_EQ(plan->runs[0].config.run.seed, 7u);
  EXPECT_EQ(plan->runs[1].config.trainer.steps, 4);
  EXPECT_THAT(plan->runs[1].config.lora.targets, ElementsAre("q_proj"));
}

TEST_F(ReadSweepTest, TextsAreThoseThatTheFileQuotes) {
  const auto plan = Read(
      "set:\n  evaluation.marker: \" = \"\n"
      "  prompts.none: |\n    Solve: {problem} # in steps\n\n    Go.\n"
      "grid: {data.problem_column: ['a #b'], trainer.steps: [\"4\"]}\n");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->runs[0].config.evaluation.marker, " = ");
  EXPECT_EQ(plan->runs[0].config.prompts.none,
            "Solve: {problem} # in steps\n\nGo.\n");
  EXPECT_THAT(Names(*plan), ElementsAre("problem_column-a__b-steps-4"));
  EXPECT_EQ(plan->runs[0].config.data.problem_column, "a #b");
  EXPECT_EQ(plan->runs[0].config.trainer.steps, 4);
}

TEST_F(ReadSweepTest, MemoryLimitsHowManyRunSideBySide) {
  const auto one = Read("seeds: [1, 2, 3, 4]\n");
  ASSERT_TRUE(one.ok()) << one.status();
  const double gib = one->runs[0].memory_bytes / (1 << 30);
  const auto some = Read(
      "seeds: [1, 2, 3, 4]\nmemory_gib: " + std::to_string(2.5 * gib) + "\n");
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->parallel, 2);
  EXPECT_EQ(some->runs[0].config.run.num_threads, ThreadsOfEach(2));
  const auto larger = Read("seeds: [1]\nset: {run.rollout_workers: 3}\n");
  ASSERT_TRUE(larger.ok()) << larger.status();
  EXPECT_GT(larger->runs[0].memory_bytes, one->runs[0].memory_bytes);
  const auto two = Read("seeds: [1, 2, 3]\nparallel: 2\n");
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->parallel, 2) << "whatever they need";
  const auto fewer = Read("seeds: [1, 2]\nparallel: 1\nmemory_gib: 1000\n");
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_EQ(fewer->parallel, 1);
  EXPECT_THAT(Problem("memory_gib: 0.001\n"), HasSubstr("memory_gib is 0.001"));
}

TEST_F(ReadSweepTest, AFinishedRunIsDoneUnlessItWasAnother) {
  const auto plan = Read("seeds: [1]\n");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->runs[0].done);
  Write("runs/s/seed-1/summary.json", "{\"steps\": 3}");
  Write("runs/s/seed-1/config.yaml",
        "model: {path: " + folder_ + "/model, device: cpu}\n" +
            "data: {path: data.jsonl}\n" +
            "run: {seed: 1}\ntrainer: {steps: 3}\n");
  EXPECT_TRUE(Read("seeds: [1]\n")->runs[0].done);
  EXPECT_FALSE(Read("seeds: [1]\nset: {trainer.steps: 4}\n")->runs[0].done);
  EXPECT_THAT(Problem("seeds: [1]\nset: {lora.rank: 8}\n"),
              AllOf(HasSubstr("a run of other settings"),
                    HasSubstr("lora.rank was 64, is 8")));
  // The environment applies to new runs of the sweep, not to existing runs.
  ASSERT_EQ(::setenv("DAPD_LORA__RANK", "8", 1), 0);
  EXPECT_THAT(Problem("seeds: [1]\n"), HasSubstr("lora.rank was 64, is 8"));
  ::unsetenv("DAPD_LORA__RANK");
}

TEST_F(ReadSweepTest, EveryRunThatCannotBeIsNamedAtOnce) {
  const std::string problem = Problem(
      "list:\n  - {name: a, set: {lora.rank: 0}}\n  - {name: good}\n"
      "  - {name: b, set: {trainer.stepz: 1}}\n");
  EXPECT_THAT(problem,
              AllOf(HasSubstr("a: "),
                    HasSubstr("lora.rank"),
                    HasSubstr("b: "),
                    HasSubstr("trainer.stepz")));
}

TEST_F(ReadSweepTest, NameSeedAndPlaceAreNotGivenTwice) {
  const std::string both = "run.seed, and seeds too";
  EXPECT_THAT(Problem("seeds: [1, 2]\n", {"run.seed=9"}),
              HasSubstr("--set gives " + both));
  EXPECT_THAT(Problem("seeds: [7]\nset: {run.seed: 9}\n"),
              HasSubstr("set gives " + both));
  EXPECT_THAT(Problem("seeds: [7]\ngrid: {run.seed: [1, 2]}\n"),
              HasSubstr("the setting seed-1 gives " + both));
  EXPECT_THAT(Problem("grid: {run.output_dir: [ox, oy]}\n"),
              HasSubstr("the setting output_dir-ox gives run.output_dir"));
  const std::string named = "gives run.name, but a sweep names its runs";
  EXPECT_THAT(Problem("list: [{name: a, set: {run.name: b}}]\n"),
              HasSubstr("the setting a " + named));
  EXPECT_THAT(Problem("seeds: [1]\n", {"run.name=b"}),
              HasSubstr("--set " + named));
  EXPECT_TRUE(Read("grid: {run.seed: [1, 2]}\n").ok());
  EXPECT_TRUE(
      Read("set: {run.output_dir: " + folder_ + "/other}\n", {"run.seed=9"})
          .ok());
}

TEST_F(ReadSweepTest, AnAdapterToStartFromHasToFitEachRun) {
  // The model has two layers, a hidden_size of 32 and heads of 64 in total.
  NamedTensors tensors;
  for (const char* layer : {"0", "1"}) {
    const std::string name = absl::StrCat(
        "base_model.model.model.layers.", layer, ".self_attn.q_proj.lora_");
    tensors.emplace_back(
        name + "A.weight",
        HostTensor::Allocate(DType::kFloat32, {8, 32}).value());
    tensors.emplace_back(
        name + "B.weight",
        HostTensor::Allocate(DType::kFloat32, {64, 8}).value());
  }
  Write("start/adapter_model.safetensors",
        SerializeSafetensors(tensors, {}).value());
  Write("start/adapter_config.json", R"({"peft_type": "LORA", "r": 8,
    "lora_alpha": 16, "target_modules": ["q_proj"]})");
  const std::string start = "set: {lora.start_from: " + folder_ +
                            "/start, lora.alpha: 16, lora.targets: [q_proj]}\n";
  EXPECT_THAT(Problem(start + "grid: {lora.rank: [8, 4]}\n"),
              AllOf(HasSubstr("rank-4: "), Not(HasSubstr("rank-8: "))));
  const absl::Status lost =
      Read("set: {lora.start_from: " + folder_ + "/none}\n").status();
  EXPECT_EQ(ExitCodeOf(lost), ExitCode::kData) << lost;
}

TEST_F(ReadSweepTest, TwoRunsOfTheSameValuesAreRefused) {
  EXPECT_THAT(
      Problem("grid: {trainer.learning_rate: [1.0e-4, 0.0001]}\n"),
      HasSubstr("learning_rate-1.0e-4 and learning_rate-0.0001 have the same"));
  EXPECT_THAT(Problem("grid: {run.seed: [1, 2]}\n", {"run.seed=9"}),
              HasSubstr("seed-1 and seed-2 have the same values"));
}

TEST_F(ReadSweepTest, WhatTheFileCannotSayIsNamedByItsLine) {
  for (const auto& [text, said] :
       std::vector<std::pair<std::string, std::string>>{
           {"seedz: [1]\n", "sweep.yaml:3: unknown key seedz"},
           {"grid: {}\n", "sweep.yaml:3: grid"},
           {"grid: {a.b: 3}\n", "grid.a.b: a list of values"},
           {"list: [{set: {}}]\n", "needs a name"},
           {"list: [{name: ../x}]\n", "../x"},
           {"grid: {a.b: [1]}\nlist: [{name: x}]\n", "only one of the two"},
           {"seeds: []\n", "seeds"},
           {"seeds: [one]\n", "sweep.yaml:3"},
           {"parallel: 0\n", "parallel: at least 1"},
           {"parallel: many\n", "a number is expected"},
           {"seeds: [-1]\n", "a number is expected"},
           {"memory_gib: -1\n", "memory_gib"},
           {"seeds: [1, 1]\n", "two runs are called seed-1"},
           {"set: [1]\n", "a map of keys"},
           {"set: {a.b: }\n", "a value is missing"},
           {"seeds: [1]\nseeds: [2]\n", "sweep.yaml:4: seeds occurs twice"},
           {"set: {a.b: 1, a.b: 3}\n", "sweep.yaml:3: a.b occurs twice"},
           {"list: [{name: x, name: y}]\n", "name occurs twice"},
           {"---\nname: t\n", "only one document"}}) {
    EXPECT_THAT(Problem(text), HasSubstr(said)) << text;
  }
}

}  // namespace
}  // namespace dapd
