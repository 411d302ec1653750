// A whole run of TrainerLoop on a random model, with workers that answer at
// once, and members for what a test changes and reads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/base/aside.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/charts/run_history.h"
#include "common/collective/collective.h"
#include "common/config/load_config.h"
#include "common/config/preset_terms.h"
#include "common/config/run_folder.h"
#include "common/data/text_pipeline.h"
#include "common/grader/grading_desk.h"
#include "common/metrics/metrics_registry.h"
#include "services/trainer/record/run_answers.h"
#include "services/trainer/status/trainer_metrics.h"
#include "services/trainer/status/trainer_status.h"
#include "services/trainer/trainer_loop.h"
#include "tests/fakes/instant_workers.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {

class TrainerLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteSmallTokenizer(folder_);
    text_ = LoadTextPipeline(folder_, {}, /*end_token_id=*/-1).value();
    for (const char* id : {"a", "b", "c"}) {
      data_.problems.push_back(
          {id, absl::StrCat("How many ", id, "?"), "the answer is 123", "123"});
    }
    const std::string path = folder_ + "/config.yaml";
    ASSERT_TRUE(WriteFileAtomically(path,
                                    "model: {path: " + folder_ +
                                        "}\n"
                                        "run: {output_dir: " +
                                        folder_ +
                                        "}\n"
                                        "rollout: {max_new_tokens: 4}\n"
                                        "trainer: {steps: 4, batch_size: 2, "
                                        "micro_batch_size: 1}\n")
                    .ok());
    auto loaded = LoadConfig(path, {});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    loaded_ = *std::move(loaded);
  }

  // Starts the run, or continues it where it stopped.
  absl::Status Run(int64_t max_staleness) {
    Config& config = loaded_.config;
    config.rollout.max_staleness = max_staleness;
    auto model = std::make_shared<ModelWeights>(
        *MakeRandomModel("qwen3", 1, at::kFloat, 300));
    model->config.max_positions = context_;
    const std::shared_ptr<const ModelWeights> weights = std::move(model);
    const auto terms = ExpandTerms(config.objective);
    Policy policy(
        MakeFreshAdapter(weights->config, {.rank = 2, .alpha = 4}, 7, at::kCPU),
        std::nullopt,
        MakeOptimizerOptions(config));
    rollouts_.emplace(policy, config.run.seed);
    rollouts_->lies_ = lies_;
    std::atomic<bool> is_far_ahead = false;
    rollouts_->holds_back_ = holds_back_;
    rollouts_->answer_ = answer_;
    rollouts_->logprobs_ = logprobs_;
    rollouts_->even_answer_ = even_answer_;
    rollouts_->answers_last_first_ = answers_last_first_;
    rollouts_->answer_of_ = answer_of_;
    rollouts_->num_left_ = num_left_;
    rollouts_->is_far_ahead_ = &is_far_ahead;
    teachers_.emplace(weights->config.hidden_size);
    const auto collective = MakeSingleRank();
    const auto devices =
        DeviceGroup::Join(*collective, at::kCPU, /*timeout_seconds=*/1).value();
    const RunFolder folder = RunFolder::Open(config.run).value();
    MetricsRegistry registry("trainer", config.run.name);
    TrainerMetrics metrics(registry, config);
    TrainerStatus status;
    RunHistory history;
    RunAnswers answers;
    const auto ledger = Ledger::Open(folder.File("ledger.jsonl")).value();
    const auto recorder =
        RunRecorder::Create(loaded_,
                            folder,
                            0,
                            held_out_,
                            {&metrics, &status, &history, &answers})
            .value();
    const TeacherHeads heads{.positions = weights->config.max_positions};
    TrainerLoop loop(
        {.batch = {
             .config = config,
             .weights = weights,
             .tokenizer = *text_.tokenizer,
             .views = *text_.views,
             .terms = terms,
             .data = data_,
             .rollouts = *rollouts_,
             .teachers = *teachers_,
             .teacher_heads = heads,
             .collective = *collective,
             .devices = *devices,
             .sharded_layers = nullptr,
             .policy = policy,
             .limits = PlanTrainerLimits(config, weights->config, std::nullopt)
                           .value(),
             .on_phase = on_phase_,
             .on_progress = [](int64_t, int64_t) {},
             .on_ahead =
                 [&](int64_t micro_batches, int64_t tokens) {
                   is_far_ahead =
                       micro_batches > 0 && tokens >= held_back_until_tokens_;
                 },
             .on_served = [](int64_t) {},
             .grader = grader_.get()},
         .identity = {},
         .held_out = held_out_,
         .recorder = *recorder,
         .ledger = *ledger,
         .metrics = metrics,
         .status = status,
         .wait_for_stop = [this](absl::Duration) {
           if (on_wait_) on_wait_();
           return is_stopped_;
         }});
    const absl::Status outcome = loop.Run();
    shown_ = answers.Get();
    return outcome;
  }

  // Evaluates one held-out problem without divergences, also within the run if
  // `interval` is not 0. Returns the configuration for more changes.
  Config& EvaluateEvery(int64_t interval) {
    held_out_.problems = {data_.problems[0]};
    Config& config = loaded_.config;
    config.evaluation.kl_problems = 0;
    config.evaluation.path = "held_out.jsonl";
    config.evaluation.interval = interval;
    return config;
  }

  const std::string folder_ = TempPath("trainer_loop_test");
  LoadedConfig loaded_;
  // Makes padding the end token, which then ends no answer and is not scored.
  void PadWithTheEnd() {
    text_.views = std::make_unique<const ViewBuilder>(
        *text_.tokenizer,
        *text_.chat_template,
        ViewOptions{.pad_token_id = kSmallEndId});
  }

  TextPipeline text_;
  Dataset data_;
  Dataset held_out_;  // none
  // Returns a number of every step in metrics.jsonl, by its key or path
  // ("/a/b").
  std::vector<double> MetricOfSteps(const std::string& key) {
    const RunFolder folder = RunFolder::Open(loaded_.config.run).value();
    std::vector<double> values;
    EXPECT_TRUE(
        ForEachJsonLine(folder.File("metrics.jsonl"),
                        [&](const nlohmann::json& row, int) {
                          values.push_back(
                              key[0] == '/'
                                  ? row.at(nlohmann::json::json_pointer(key))
                                  : row.at(key));
                          return absl::OkStatus();
                        })
            .ok());
    return values;
  }

  // Returns the rows of a step's samples/.
  std::vector<nlohmann::json> SamplesOfStep(int64_t step) {
    const RunFolder folder = RunFolder::Open(loaded_.config.run).value();
    std::vector<nlohmann::json> rows;
    EXPECT_TRUE(ForEachJsonLine(folder.File(absl::StrFormat(
                                    "samples/step-%06d.jsonl", step)),
                                [&](const nlohmann::json& row, int) {
                                  rows.push_back(row);
                                  return absl::OkStatus();
                                })
                    .ok());
    return rows;
  }

  // Puts a folder in the place of the temporary file of `target` once the first
  // answer is sampled: a run that opens its folder removes what stands aside.
  // Returns the path of the folder.
  std::string ObstructOnFirstAnswer(const std::string& target) {
    const std::string in_the_way = AsideOf(target);
    answer_of_ =
        [this, in_the_way, stands = false](const SamplingKey& /*key*/) mutable {
          if (!stands) {
            EXPECT_TRUE(MakeDirectories(in_the_way).ok());
          }
          stands = true;
          return answer_;
        };
    return in_the_way;
  }

  // Grades answers by a Python program that gets each question as `q`, sets the
  // keys of `g`, and may use `calls`, the number of earlier questions.
  void GradeBy(const std::string& program, GraderSection options = {}) {
    options.command = {"python3",
                       "-c",
                       "import json, os, sys, time\ncalls = 0\n"
                       "for line in sys.stdin:\n"
                       "    q = json.loads(line); g = {'id': q['id']}\n"
                       "    " +
                           program +
                           "\n    calls += 1\n"
                           "    print(json.dumps(g), flush=True)\n"};
    options.workers = 1;
    loaded_.config.grader = options;
    grader_ = GradingDesk::Open(options).value();
  }

  // Returns an answer that ends in a boxed result; 123 is right.
  std::vector<int32_t> Boxed(const std::string& result) const {
    std::vector<int32_t> ids =
        text_.tokenizer->Encode(absl::StrCat("\\boxed{", result, "}")).value();
    ids.push_back(kSmallEndId);
    return ids;
  }

  int64_t context_ = 4096;  // of the model
  bool is_stopped_ = true;  // what is_stopped() returns
  std::function<void()> on_wait_;
  std::function<void(TrainerPhase)> on_phase_ = [](TrainerPhase) {};
  bool lies_ = false;
  bool holds_back_ = false;
  int64_t held_back_until_tokens_ = 0;  // tokens passed forward
  bool answers_last_first_ = false;
  std::vector<int32_t> answer_ = {72, 105, kSmallEndId};
  std::vector<float> logprobs_;  // of the tokens of answer_
  std::optional<std::vector<int32_t>> even_answer_;
  AnswerOf answer_of_;
  std::unique_ptr<GradingDesk> grader_;  // null: the built-in grader
  int64_t num_left_ = -1;
  std::optional<InstantRollouts> rollouts_;
  std::optional<InstantTeachers> teachers_;
  AnswersToShow shown_;  // set at the end
};

}  // namespace dapd
