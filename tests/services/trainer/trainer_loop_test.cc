#include "services/trainer/trainer_loop.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/mutex.h"
#include "common/collective/collective.h"
#include "common/config/load_config.h"
#include "common/config/preset_terms.h"
#include "common/config/run_folder.h"
#include "common/data/text_pipeline.h"
#include "common/metrics/metrics_registry.h"
#include "common/tensor/torch_bridge.h"
#include "services/trainer/record/evaluation_report.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// When a problem was submitted: which policy the workers served, and how many
// steps had been trained.
struct Submission {
  int64_t served = 0;
  int64_t trained = 0;
  bool operator==(const Submission&) const = default;
};

using AnswerOf = std::function<std::vector<int32_t>(const SamplingKey& key)>;

// Answers every task with the same tokens, under the policy it was given last.
// Tasks are submitted and answers asked for by two threads, one after the
// other.
class InstantRollouts : public RolloutClient {
 public:
  InstantRollouts(const Policy& policy, uint64_t run_seed)
      : policy_(policy), run_seed_(run_seed) {}

  void SetPolicy(std::shared_ptr<const PolicyUpdate> policy) override {
    EXPECT_TRUE(tasks_.empty()) << "a policy was replaced that still samples";
    served_ = std::move(policy);
  }
  void Listen(OnTokens on_tokens) override {
    listened_ |= !!on_tokens;
    on_tokens_ = std::move(on_tokens);
  }
  void Submit(RolloutTask task) override {
    const Submission submission{served_->version, policy_.version()};
    if (task.request.key.seed == run_seed_) {
      submissions_[int64_t{task.request.key.step} + 1].push_back(submission);
    } else {
      held_out_submissions_.push_back(submission);
    }
    *is_far_ahead_ = false;
    keys_[task.id] = task.request.key;
    tasks_.push_back(task.id);
  }
  absl::StatusOr<std::optional<RolloutResult>> NextWithin(
      absl::Duration timeout) override {
    if (tasks_.size() == 1 && holds_back_ && !is_far_ahead_->load()) {
      if (on_tokens_) {
        on_tokens_(tasks_.front(), {answer_.begin(), answer_.end() - 1});
      }
      absl::SleepFor(std::min(timeout, absl::Milliseconds(1)));
      return std::nullopt;
    }
    if (num_left_ == 0) return absl::UnavailableError("no worker is left");
    --num_left_;
    RolloutResult result;
    if (answers_last_first_) std::reverse(tasks_.begin(), tasks_.end());
    result.id = tasks_.front();
    tasks_.pop_front();
    if (answers_last_first_) std::reverse(tasks_.begin(), tasks_.end());
    result.ids = result.id % 2 == 0 ? even_answer_.value_or(answer_) : answer_;
    if (answer_of_) result.ids = answer_of_(keys_.at(result.id));
    result.logprobs = logprobs_;
    result.policy_version = served_->version + (lies_ ? 1 : 0);
    result.adapter_digest = served_->adapter.digest;
    return result;
  }
  std::vector<WorkerState> Workers() const override { return {}; }
  void Shutdown() override {}

  const Policy& policy_;
  const uint64_t run_seed_;
  std::shared_ptr<const PolicyUpdate> served_;
  std::deque<uint64_t> tasks_;
  std::map<int64_t, std::vector<Submission>> submissions_;  // by step
  std::vector<Submission> held_out_submissions_;
  std::vector<int32_t> answer_;
  std::vector<float> logprobs_;
  std::optional<std::vector<int32_t>> even_answer_;  // of tasks with even ids
  AnswerOf answer_of_;                               // given: in their place
  std::map<uint64_t, SamplingKey> keys_;             // of all tasks ever
  int64_t num_left_ = -1;  // answers until no worker is left; below 0: endless
  OnTokens on_tokens_;
  bool listened_ = false;
  bool lies_ = false;  // about the policy
  bool answers_last_first_ = false;
  // The last answer to come, until enough was trained without it.
  bool holds_back_ = false;
  std::atomic<bool>* is_far_ahead_ = nullptr;
};

class InstantTeachers : public TeacherClient {
 public:
  explicit InstantTeachers(int64_t hidden_size) : hidden_size_(hidden_size) {}

  void SetWeights(PolicyUpdates updates) override {
    weights_.push_back(std::move(updates));
  }
  void Submit(ScoreTask task) override {
    MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
  }
  void SubmitPrefix(ScoreTask) override { ++prefixes_; }
  void WithdrawPrefix(uint64_t) override {}
  absl::StatusOr<std::optional<ScoreResult>> NextWithin(
      absl::Duration) override {
    MutexLock lock(&mutex_);
    ScoreResult result;
    result.id = tasks_.front().id;
    for (const auto& [name, view] : tasks_.front().views) {
      EXPECT_GE(view.scored_count, 1) << "a teacher refuses less";
      result.views[name]["hidden"] =
          *FromTorch(at::full({view.scored_count, hidden_size_}, 0.5));
    }
    tasks_.pop_front();
    return result;
  }
  std::vector<WorkerState> Workers() const override { return {}; }
  void Shutdown() override {}

  const int64_t hidden_size_;
  Mutex mutex_;
  std::deque<ScoreTask> tasks_ ABSL_GUARDED_BY(mutex_);
  int64_t prefixes_ = 0;
  std::vector<PolicyUpdates> weights_;  // as they were set
};

class TrainerLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(folder_);
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
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Goes on where the run was left.
  absl::Status Run(int64_t max_staleness) {
    Config& config = loaded_.config;
    config.rollout.max_staleness = max_staleness;
    const auto weights = MakeRandomModel("qwen3", 1, at::kFloat, 300);
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
        RunRecorder::Create(
            loaded_, folder, 0, &metrics, &status, &history, &answers)
            .value();
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
             .collective = *collective,
             .devices = *devices,
             .sharded_layers = nullptr,
             .policy = policy,
             .limits = PlanTrainerLimits(config, weights->config, std::nullopt)
                           .value(),
             .on_phase = [](TrainerPhase) {},
             .on_progress = [](int64_t, int64_t) {},
             .on_ahead =
                 [&](int64_t micro_batches, int64_t tokens) {
                   is_far_ahead =
                       micro_batches > 0 && tokens >= held_back_until_tokens_;
                 },
             .on_served = [](int64_t) {}},
         .identity = {},
         .held_out = held_out_,
         .recorder = *recorder,
         .ledger = *ledger,
         .metrics = metrics,
         .wait_for_stop = [this](absl::Duration) { return is_stopped_; }});
    const absl::Status outcome = loop.Run();
    shown_ = answers.Get();
    return outcome;
  }

  const std::string folder_ = TempPath("trainer_loop_test");
  LoadedConfig loaded_;
  TextPipeline text_;
  Dataset data_;
  Dataset held_out_;  // none
  // A number of every step in metrics.jsonl, by its key or path ("/a/b").
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

  // The rows of a step's samples/.
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

  // An answer that ends in a boxed result; right is 123.
  std::vector<int32_t> Boxed(const std::string& result) const {
    std::vector<int32_t> ids =
        text_.tokenizer->Encode(absl::StrCat("\\boxed{", result, "}")).value();
    ids.push_back(kSmallEndId);
    return ids;
  }

  bool is_stopped_ = true;  // as far as anybody asks
  bool lies_ = false;
  bool holds_back_ = false;
  int64_t held_back_until_tokens_ = 0;  // passed forward
  bool answers_last_first_ = false;
  std::vector<int32_t> answer_ = {72, 105, kSmallEndId};
  std::vector<float> logprobs_;  // of its tokens
  std::optional<std::vector<int32_t>> even_answer_;
  AnswerOf answer_of_;
  int64_t num_left_ = -1;
  std::optional<InstantRollouts> rollouts_;
  std::optional<InstantTeachers> teachers_;
  AnswersToShow shown_;  // at the end
};

TEST_F(TrainerLoopTest, EachStepIsSampledUnderThePolicyThatItTrains) {
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(
      rollouts_->submissions_,
      ElementsAre(Pair(1, ElementsAre(Submission{0, 0}, Submission{0, 0})),
                  Pair(2, ElementsAre(Submission{1, 1}, Submission{1, 1})),
                  Pair(3, ElementsAre(Submission{2, 2}, Submission{2, 2})),
                  Pair(4, ElementsAre(Submission{3, 3}, Submission{3, 3}))));
}

TEST_F(TrainerLoopTest,
       WithALagEachStepIsSubmittedBeforeTheOneBeforeIsTrained) {
  ASSERT_TRUE(Run(1).ok());
  EXPECT_THAT(
      rollouts_->submissions_,
      ElementsAre(Pair(1, ElementsAre(Submission{0, 0}, Submission{0, 0})),
                  Pair(2, ElementsAre(Submission{0, 0}, Submission{0, 0})),
                  Pair(3, ElementsAre(Submission{1, 1}, Submission{1, 1})),
                  Pair(4, ElementsAre(Submission{2, 2}, Submission{2, 2}))))
      << "and nothing behind the last step";
}

TEST_F(TrainerLoopTest, AnObjectiveOfReferencesAloneAsksNobody) {
  Config& config = loaded_.config;
  config.objective.preset = "sft";
  config.objective.component_clip = kNoClip;
  config.objective.kappa = 1.0;
  config.run.name = "stopped";
  EXPECT_TRUE(absl::IsCancelled(Run(0)));
  is_stopped_ = false;
  for (const int64_t max_staleness : {0, 1}) {
    config.run.name = absl::StrCat("sft-", max_staleness);
    ASSERT_TRUE(Run(max_staleness).ok());
    EXPECT_TRUE(rollouts_->submissions_.empty());
    EXPECT_TRUE(shown_.step.answers.empty());
    EXPECT_TRUE(teachers_->weights_.empty());
    EXPECT_TRUE(teachers_->tasks_.empty());
    EXPECT_THAT(MetricOfSteps("samples"), ElementsAre(2, 2, 2, 2));
    EXPECT_THAT(MetricOfSteps("untrainable_samples"), ElementsAre(0, 0, 0, 0));
    // A random model of 300 tokens gives each about 1/300.
    for (const double loss : MetricOfSteps("loss")) EXPECT_NEAR(loss, 5.7, 1.5);
  }
  held_out_.problems = {data_.problems[0]};
  config.evaluation.kl_problems = 1;
  config.run.name = "evaluated";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(rollouts_->held_out_submissions_.size(), 2u)
      << "the answers that are graded, and none for the divergence";
}

TEST_F(TrainerLoopTest, HeldOutProblemsAreAnsweredByTheLivePolicy) {
  held_out_.problems = {data_.problems[0]};
  loaded_.config.evaluation.kl_problems = 0;
  for (const int64_t max_staleness : {0, 1}) {
    loaded_.config.run.name = absl::StrCat("lag-", max_staleness);
    ASSERT_TRUE(Run(max_staleness).ok());
    EXPECT_THAT(rollouts_->held_out_submissions_,
                ElementsAre(Submission{0, 0}, Submission{4, 4}));
  }
}

// With a lag the step behind an evaluation is begun after it, but by the same
// policy as without.
TEST_F(TrainerLoopTest, EvaluationsWithinTheRunChangeNothingOfIt) {
  held_out_.problems = {data_.problems[0]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 0;
  config.evaluation.path = "held_out.jsonl";
  for (const int64_t max_staleness : {0, 1}) {
    std::vector<std::vector<double>> losses;
    std::vector<std::vector<int64_t>> served;
    for (const int64_t interval : {0, 2}) {
      config.evaluation.interval = interval;
      config.run.name = absl::StrCat("within-", max_staleness, interval);
      ASSERT_TRUE(Run(max_staleness).ok());
      losses.push_back(MetricOfSteps("loss"));
      served.emplace_back();
      for (const auto& [step, submissions] : rollouts_->submissions_) {
        for (const Submission& each : submissions) {
          served.back().push_back(each.served);
        }
      }
    }
    EXPECT_THAT(
        rollouts_->held_out_submissions_,
        ElementsAre(Submission{0, 0}, Submission{2, 2}, Submission{4, 4}));
    EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
    EXPECT_EQ(served[0], served[1]);
  }
}

TEST_F(TrainerLoopTest, AnEvaluationThatWasRecordedIsNotRepeated) {
  held_out_.problems = {data_.problems[0]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 0;
  config.evaluation.path = "held_out.jsonl";
  config.evaluation.interval = 1;
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(rollouts_->held_out_submissions_,
              ElementsAre(Submission{0, 0},
                          Submission{1, 1},
                          Submission{2, 2},
                          Submission{3, 3},
                          Submission{4, 4}));
  const std::string run = JoinPath(folder_, config.run.name);
  EXPECT_TRUE(FileExists(run + "/evaluation/step-000003.json"));
  // Of another adapter than the one that this step leads to.
  std::string report =
      ReadFile(run + "/evaluation/step-000002.json", 1 << 20).value();
  const std::string key = "\"adapter_digest\": \"";
  report.replace(report.find(key) + key.size(), 4, "xxxx");
  ASSERT_TRUE(
      WriteFileAtomically(run + "/evaluation/step-000002.json", report).ok());
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(rollouts_->held_out_submissions_,
              ElementsAre(Submission{2, 2}, Submission{4, 4}));
}

TEST_F(TrainerLoopTest, AFewAnswersOfEachStepAreKeptAndShown) {
  Config& config = loaded_.config;
  config.trainer.batch_size = 6;
  config.rollout.group_size = 2;
  answer_of_ = [this](const SamplingKey& key) {
    return key.sample == 0 ? Boxed("123")
                           : text_.tokenizer->Encode("hi").value();
  };
  ASSERT_TRUE(Run(0).ok());
  const std::string path =
      JoinPath(JoinPath(folder_, config.run.name), "answers.jsonl");
  for (int64_t step = 1; step <= 4; ++step) {
    const auto kept = ReadStepAnswers(path, step);
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_EQ(kept->step, step);
    const std::vector<nlohmann::json> samples = SamplesOfStep(step);
    ASSERT_EQ(kept->answers.size(), 4u);
    for (const ShownAnswer& answer : kept->answers) {
      const bool is_first = answer.place % 2 == 0;
      const nlohmann::json& sample =
          samples.at(static_cast<size_t>(answer.place));
      EXPECT_EQ(answer.id, sample.at("id"));
      EXPECT_EQ(answer.problem, sample.at("problem"));
      EXPECT_EQ(answer.text, is_first ? "\\boxed{123}" : "hi");
      EXPECT_EQ(answer.expected, "123");
      EXPECT_EQ(answer.extracted, is_first ? "123" : "");
      EXPECT_EQ(answer.grade,
                is_first ? AnswerGrade::kRight : AnswerGrade::kNoAnswer);
    }
  }
  EXPECT_EQ(shown_.step.step, 4);
  EXPECT_EQ(shown_.step.answers, ReadStepAnswers(path, 4)->answers);

  // The next attempt does all steps again.
  const std::string whole = ReadFile(path, 1 << 20).value();
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(ReadFile(path, 1 << 20).value(), whole);
}

TEST_F(TrainerLoopTest, HeldOutAnswersStandBeforeAndAfter) {
  held_out_.problems = {data_.problems[0], data_.problems[2]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 0;
  config.evaluation.samples = 2;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.step > 0 && key.sample == 0 ? "123" : "5");
  };
  const auto check = [this] {
    EXPECT_EQ(shown_.before, 0);
    EXPECT_EQ(shown_.after, 4);
    ASSERT_EQ(shown_.held_out.size(), 2u);
    EXPECT_EQ(shown_.held_out[0].before->id, "a");
    EXPECT_EQ(shown_.held_out[1].before->id, "c");
    for (const AnswerPair& pair : shown_.held_out) {
      EXPECT_EQ(pair.before->grade, AnswerGrade::kWrong);
      EXPECT_EQ(pair.before->extracted, "5");
      EXPECT_EQ(pair.after->grade, AnswerGrade::kRight);
    }
  };
  ASSERT_TRUE(Run(0).ok());
  check();
  // The next attempt has those before from the folder.
  answer_of_ = [this](const SamplingKey&) { return Boxed("123"); };
  ASSERT_TRUE(Run(0).ok());
  check();
}

TEST_F(TrainerLoopTest, AMarkersShareIsOneOfAnswersByProblem) {
  held_out_.problems = {data_.problems[0], data_.problems[2]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 0;
  config.evaluation.samples = 2;
  config.evaluation.marker = "12";
  // Of the first problem both answers, of the second one.
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.example == 1 && key.sample == 1 ? "5" : "123");
  };
  ASSERT_TRUE(Run(0).ok());
  const std::string run = JoinPath(folder_, config.run.name);
  for (const char* when : {"before", "after"}) {
    const auto report =
        ReadEvaluationReport(absl::StrCat(run, "/evaluation/", when, ".json"));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->marker, "12");
    ASSERT_TRUE(report->marker_rate.has_value());
    EXPECT_DOUBLE_EQ(report->marker_rate->mean, 0.75);
    EXPECT_LT(report->marker_rate->low, 0.5) << "two problems, not four";
  }
}

TEST_F(TrainerLoopTest, TheBestAdapterStaysBesideTheNewest) {
  held_out_.problems = {data_.problems[0]};
  Config& config = loaded_.config;
  config.evaluation.kl_problems = 0;
  config.evaluation.path = "held_out.jsonl";
  const std::string run = JoinPath(folder_, config.run.name);
  ASSERT_TRUE(Run(0).ok());
  EXPECT_FALSE(FileExists(run + "/adapter-best"));
  std::filesystem::remove_all(run);
  config.evaluation.interval = 3;
  // Nothing is ever right: of equal ones the earliest is the best.
  ASSERT_TRUE(Run(0).ok());
  const auto bytes = [&](const std::string& adapter) {
    return ReadFile(run + "/" + adapter + "/adapter_model.safetensors", 1 << 24)
        .value();
  };
  EXPECT_NE(bytes("adapter-best"), bytes("adapter"));
  const auto summary =
      ParseJson(ReadFile(run + "/summary.json", 1 << 20).value(), "summary");
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->at("best"), "step-000003");
}

TEST_F(TrainerLoopTest, EachStepSaysWhetherTheClipHidesSomething) {
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(MetricOfSteps("/terms/entangled_rollout/clip_hides"),
              ElementsAre(0, 0, 0, 0));
}

TEST_F(TrainerLoopTest, WithALagTeachersHearOfNoAnswerBeforeItIsWhole) {
  ASSERT_TRUE(loaded_.config.teacher.streaming);
  ASSERT_TRUE(Run(1).ok());
  EXPECT_FALSE(rollouts_->listened_);
  EXPECT_EQ(teachers_->prefixes_, 0);
}

TEST_F(TrainerLoopTest, MicroBatchesAreTrainedWhileLaterAnswersAreSampled) {
  for (const int64_t max_staleness : {0, 1}) {
    std::vector<std::vector<double>> losses;
    for (const bool early : {false, true}) {
      loaded_.config.trainer.train_while_sampling = early;
      holds_back_ = early;
      loaded_.config.run.name = absl::StrCat(max_staleness, early);
      ASSERT_TRUE(Run(max_staleness).ok());
      losses.push_back(MetricOfSteps("loss"));
      EXPECT_THAT(MetricOfSteps("early_micro_batches"),
                  ElementsAre(early, early, early, early));
    }
    EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
    EXPECT_EQ(losses[0].size(), 4u);
  }
}

// The first problem's answer comes last: the second one's micro-batch is
// trained out of turn, if there is memory for its gradient.
TEST_F(TrainerLoopTest, MicroBatchesOutOfTurnChangeNoBit) {
  loaded_.config.run.name = "in-turn";
  loaded_.config.trainer.train_while_sampling = false;
  ASSERT_TRUE(Run(0).ok());
  const std::vector<double> losses = MetricOfSteps("loss");
  const std::vector<double> norms = MetricOfSteps("gradient_norm");
  EXPECT_THAT(MetricOfSteps("forward_ahead_tokens"), ElementsAre(0, 0, 0, 0));

  loaded_.config.trainer.train_while_sampling = true;
  answers_last_first_ = true;
  for (const bool has_memory : {true, false}) {
    loaded_.config.run.name = has_memory ? "out-of-turn" : "no-memory";
    loaded_.config.trainer.ahead_memory_mib = has_memory ? 64 : 0;
    holds_back_ = has_memory;  // else nothing would be trained, ever
    ASSERT_TRUE(Run(0).ok());
    EXPECT_EQ(MetricOfSteps("loss"), losses) << "bit for bit";
    EXPECT_EQ(MetricOfSteps("gradient_norm"), norms);
    if (has_memory) {
      EXPECT_THAT(MetricOfSteps("early_micro_batches"),
                  ElementsAre(1, 1, 1, 1));
    } else {
      EXPECT_THAT(MetricOfSteps("forward_ahead_tokens"),
                  ElementsAre(0, 0, 0, 0));
    }
  }
}

// While the last answer is missing: its references and, where answers may be
// long, what was sampled of it, chunk by chunk.
TEST_F(TrainerLoopTest, WhatIsKnownOfAMissingAnswerPassesForward) {
  answer_.assign(40, 72);
  answer_.push_back(kSmallEndId);
  holds_back_ = true;
  Config& config = loaded_.config;
  config.run.name = "references";
  held_back_until_tokens_ = 1;
  ASSERT_TRUE(Run(0).ok());

  config.objective.terms = {
      {.name = "on_policy",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kSnapshot, ViewName::kCrossRollout},
       .weight = 1.0}};
  config.trainer.chunk_tokens = 16;
  std::vector<std::vector<double>> losses;
  for (const bool are_long : {false, true}) {
    config.run.name = are_long ? "long" : "short";
    config.rollout.max_new_tokens = are_long ? 1'000'000 : 41;
    config.trainer.pack_tokens = are_long ? 4'000'000 : 4096;
    // 40 tokens behind a prompt, in whole chunks.
    held_back_until_tokens_ = are_long ? 48 : 0;
    ASSERT_TRUE(Run(0).ok());
    losses.push_back(MetricOfSteps("loss"));
    for (const double tokens : MetricOfSteps("forward_ahead_tokens")) {
      EXPECT_GE(tokens, static_cast<double>(held_back_until_tokens_));
    }
  }
  EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
}

// The versions of each set, in the order in which the teachers were given them.
std::vector<std::map<WeightSet, int64_t>> VersionsOf(
    const std::vector<PolicyUpdates>& given) {
  std::vector<std::map<WeightSet, int64_t>> versions;
  for (const PolicyUpdates& updates : given) {
    versions.emplace_back();
    for (const auto& [set, update] : updates) {
      versions.back()[set] = update->version;
    }
  }
  return versions;
}

TEST_F(TrainerLoopTest, TeachersGetTheSetsThatTheTermsRead) {
  constexpr WeightSet kBase = WeightSet::kBase;
  constexpr WeightSet kSnapshot = WeightSet::kSnapshot;
  constexpr WeightSet kEma = WeightSet::kEma;
  constexpr WeightSet kLive = WeightSet::kLive;
  using Versions = std::vector<std::map<WeightSet, int64_t>>;
  Config& config = loaded_.config;
  config.teacher.snapshot_interval = 2;
  const auto term = [](const char* name, WeightSet weights) {
    return Term{.name = name,
                .student = ViewName::kNoneReference,
                .target = TeacherPass{weights, ViewName::kCrossReference},
                .weight = 1.0};
  };
  config.run.name = "base";
  config.objective.terms = {term("a", kBase)};
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(VersionsOf(teachers_->weights_), (Versions{{{kBase, 0}}}));
  config.run.name = "snapshot";
  config.objective.terms = {term("a", kBase), term("b", kSnapshot)};
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(VersionsOf(teachers_->weights_),
            (Versions{{{kSnapshot, 0}}, {{kSnapshot, 2}}, {{kSnapshot, 4}}}));
  config.run.name = "all";
  config.trainer.steps = 3;
  config.objective.terms = {
      term("a", kLive), term("b", kSnapshot), term("c", kEma)};
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(VersionsOf(teachers_->weights_),
            (Versions{{{kSnapshot, 0}, {kEma, 0}, {kLive, 0}},
                      {{kSnapshot, 0}, {kEma, 1}, {kLive, 1}},
                      {{kSnapshot, 2}, {kEma, 2}, {kLive, 2}},
                      {{kSnapshot, 2}, {kEma, 3}, {kLive, 3}}}));
  // What the rollout workers got, byte for byte: it is the same update.
  EXPECT_EQ(teachers_->weights_.back().at(kLive), rollouts_->served_);
  EXPECT_NE(teachers_->weights_.back().at(kEma)->adapter.digest,
            rollouts_->served_->adapter.digest);
}

// Both answers to a step, of both micro-batches.
TEST_F(TrainerLoopTest, TheSamplersMismatchIsOfAllAnswersOfAStep) {
  const auto mismatches = [&](const char* key) {
    std::vector<double> values;
    const RunFolder folder = RunFolder::Open(loaded_.config.run).value();
    EXPECT_TRUE(ForEachJsonLine(folder.File("metrics.jsonl"),
                                [&](const nlohmann::json& row, int) {
                                  values.push_back(
                                      row.at("sampler_mismatch").at(key));
                                  return absl::OkStatus();
                                })
                    .ok());
    return values;
  };
  loaded_.config.run.name = "unknown";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(mismatches("tokens"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(mismatches("max"), ElementsAre(0, 0, 0, 0));
  const std::vector<double> losses = MetricOfSteps("loss");

  loaded_.config.run.name = "known";
  logprobs_ = {-100, -100, -100};
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(mismatches("tokens"), ElementsAre(6, 6, 6, 6));
  // A random model of 300 tokens gives each about 1/300.
  for (const double mean : mismatches("mean")) EXPECT_NEAR(mean, 94, 5);
  EXPECT_EQ(MetricOfSteps("loss"), losses) << "measured, not trained";
}

// As released: an answer of padding alone has nothing to score, its reference
// has.
TEST_F(TrainerLoopTest, AnAnswerOfPaddingAloneLeavesItsReferencesTerms) {
  text_ = LoadTextPipeline(folder_, {}, /*end_token_id=*/kSmallEndId).value();
  const auto tokens_of = [&](const std::string& term) {
    return MetricOfSteps("/terms/" + term + "/tokens");
  };
  loaded_.config.trainer.micro_batch_size = 2;
  for (const int64_t max_staleness : {0, 1}) {
    std::vector<std::vector<double>> losses;
    for (const bool early : {false, true}) {
      loaded_.config.trainer.train_while_sampling = early;
      loaded_.config.run.name = absl::StrCat("mixed", max_staleness, early);
      even_answer_ = {kSmallEndId};
      ASSERT_TRUE(Run(max_staleness).ok());
      EXPECT_THAT(MetricOfSteps("samples"), ElementsAre(1, 1, 1, 1));
      EXPECT_THAT(MetricOfSteps("untrainable_samples"),
                  ElementsAre(1, 1, 1, 1));
      EXPECT_THAT(tokens_of("entangled_rollout"), ElementsAre(2, 2, 2, 2));
      const double references = tokens_of("entangled_reference")[0];
      losses.push_back(MetricOfSteps("loss"));

      loaded_.config.run.name = absl::StrCat("all", max_staleness, early);
      answer_ = {kSmallEndId, kSmallEndId};
      ASSERT_TRUE(Run(max_staleness).ok());
      EXPECT_THAT(MetricOfSteps("untrainable_samples"),
                  ElementsAre(2, 2, 2, 2));
      EXPECT_THAT(tokens_of("privileged_rollout"), ElementsAre(0, 0, 0, 0));
      EXPECT_EQ(tokens_of("privileged_reference")[0], references);
      for (const double norm : MetricOfSteps("gradient_norm")) {
        EXPECT_GT(norm, 0.0);
      }
      answer_ = {72, 105, kSmallEndId};
    }
    EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
  }
}

TEST_F(TrainerLoopTest, WithoutATokenForAnyTermAStepIsAnError) {
  text_ = LoadTextPipeline(folder_, {}, /*end_token_id=*/kSmallEndId).value();
  loaded_.config.objective.terms = {
      {.name = "on_policy",
       .student = ViewName::kNoneRollout,
       .target = TeacherPass{WeightSet::kBase, ViewName::kCrossRollout},
       .weight = 1.0}};
  even_answer_ = {kSmallEndId};
  ASSERT_TRUE(Run(0).ok()) << "its neighbour is trained";
  loaded_.config.run.name = "all";
  answer_ = {kSmallEndId};
  const absl::Status status = Run(0);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

// Counts what it encodes.
class CountingTokenizer : public Tokenizer {
 public:
  explicit CountingTokenizer(const Tokenizer& inner) : inner_(inner) {}
  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const override {
    ++num_encoded_;
    return inner_.Encode(text);
  }
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids,
                                     bool skip_special_tokens) const override {
    return inner_.Decode(ids, skip_special_tokens);
  }
  int32_t size() const override { return inner_.size(); }
  int32_t TokenId(absl::string_view token) const override {
    return inner_.TokenId(token);
  }
  bool IsSpecial(int32_t id) const override { return inner_.IsSpecial(id); }
  std::optional<int32_t> pad_id() const override { return inner_.pad_id(); }

  const Tokenizer& inner_;
  mutable std::atomic<int64_t> num_encoded_ = 0;
};

TEST_F(TrainerLoopTest, EachTextOfASampleIsTokenizedOnce) {
  const CountingTokenizer counting(*text_.tokenizer);
  text_.views = std::make_unique<const ViewBuilder>(
      counting, *text_.chat_template, ViewOptions{});
  const Problem& problem = data_.problems[0];
  ASSERT_TRUE(
      text_.views->Build({"", problem.problem, problem.solution, answer_})
          .ok());
  const int64_t of_views = counting.num_encoded_;
  ASSERT_TRUE(text_.views->RolloutPrompt(problem.problem).ok());
  const int64_t of_prompt = counting.num_encoded_ - of_views;

  loaded_.config.teacher.streaming = false;
  loaded_.config.trainer.steps = 1;
  counting.num_encoded_ = 0;
  ASSERT_TRUE(Run(0).ok());
  // The prompt that workers are probed with, and two samples.
  EXPECT_EQ(counting.num_encoded_, of_prompt + 2 * (of_prompt + of_views));
}

// Of each group of two the second answer is right: the first one's teacher
// reads it, the second one has nobody to read.
TEST_F(TrainerLoopTest, ASiblingTeachesTheOthersOfItsGroup) {
  Config& config = loaded_.config;
  config.objective.preset = "sdpo";
  config.rollout.group_size = 2;
  config.trainer.batch_size = 4;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample == 0 ? "5" : "123");
  };
  std::vector<std::vector<double>> losses;
  for (const bool last_first : {false, true}) {
    config.run.name = last_first ? "last-first" : "in-order";
    answers_last_first_ = last_first;
    ASSERT_TRUE(Run(0).ok());
    losses.push_back(MetricOfSteps("loss"));
    EXPECT_THAT(MetricOfSteps("/rollout/taught_fraction"),
                ElementsAre(0.5, 0.5, 0.5, 0.5));
    EXPECT_THAT(MetricOfSteps("/rollout/solved_fraction"),
                ElementsAre(1, 1, 1, 1));
    EXPECT_THAT(MetricOfSteps("/rollout/correct_fraction"),
                ElementsAre(0.5, 0.5, 0.5, 0.5));
    const auto tokens = static_cast<double>(2 * Boxed("5").size());
    EXPECT_THAT(MetricOfSteps("/terms/sdpo/tokens"),
                ElementsAre(tokens, tokens, tokens, tokens));
    const std::vector<nlohmann::json> rows = SamplesOfStep(1);
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].at("id"), rows[1].at("id"));
    EXPECT_NE(rows[0].at("id"), rows[2].at("id"));
    EXPECT_EQ(rows[0].at("sibling"), "\\boxed{123}");
    EXPECT_FALSE(rows[1].contains("sibling"));
  }
  EXPECT_EQ(losses[0], losses[1]) << "bit for bit";
}

TEST_F(TrainerLoopTest, WithoutARightAnswerThePolicyRests) {
  Config& config = loaded_.config;
  config.objective.preset = "sdpo";
  config.rollout.group_size = 2;
  answer_of_ = [this](const SamplingKey&) { return Boxed("5"); };
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(MetricOfSteps("loss"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(MetricOfSteps("gradient_norm"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(MetricOfSteps("/rollout/taught_fraction"),
              ElementsAre(0, 0, 0, 0));
  // What is wrong with them is something to learn from.
  config.run.name = "feedback";
  config.objective.sdpo.feedback = "without_sibling";
  ASSERT_TRUE(Run(0).ok());
  for (const double norm : MetricOfSteps("gradient_norm")) EXPECT_GT(norm, 0.0);
  EXPECT_EQ(SamplesOfStep(1)[0].at("feedback"),
            "The final result \\boxed{5} is wrong.");
}

TEST_F(TrainerLoopTest, ASecondAnswerStandsInTheReferencesPlace) {
  Config& config = loaded_.config;
  config.rollout.source = "dual";
  // Once it is the same as the first.
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample < 2 ? "5" : "7");
  };
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(rollouts_->submissions_.at(1).size(), 6u);
  for (const nlohmann::json& row : SamplesOfStep(1)) {
    EXPECT_EQ(row.at("rollout"), "\\boxed{5}");
    EXPECT_EQ(row.at("reference"), "\\boxed{7}");
    EXPECT_EQ(row.at("reference_ids"), Boxed("7"));
  }
  const auto tokens = static_cast<double>(2 * Boxed("7").size());
  EXPECT_EQ(MetricOfSteps("/terms/entangled_reference/tokens")[0], tokens);
  for (const double norm : MetricOfSteps("gradient_norm")) EXPECT_GT(norm, 0.0);

  config.run.name = "always-equal";
  config.trainer.steps = 1;
  answer_of_ = [this](const SamplingKey&) { return Boxed("5"); };
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(rollouts_->submissions_.at(1).size(), 2u * 10);
}

TEST_F(TrainerLoopTest, TheFirstApprovedCandidateStandsInTheReferencesPlace) {
  Config& config = loaded_.config;
  config.rollout.source = "verified";
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample >= 3 ? "123" : "5");
  };
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(rollouts_->submissions_.at(1).size(), 2u * 5);
  EXPECT_THAT(MetricOfSteps("/rollout/verified_fraction"),
              ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(SamplesOfStep(1)[0].at("reference"), "\\boxed{123}");

  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample == 1 ? "6" : "5");
  };
  config.run.name = "first";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_EQ(MetricOfSteps("/rollout/verified_fraction")[0], 0.0);
  EXPECT_EQ(SamplesOfStep(1)[0].at("reference"), "\\boxed{6}");
  EXPECT_EQ(MetricOfSteps("samples")[0], 2.0);

  config.run.name = "skip";
  config.rollout.unverified = "skip";
  ASSERT_TRUE(Run(0).ok());
  EXPECT_THAT(MetricOfSteps("left_out_samples"), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(MetricOfSteps("samples"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(MetricOfSteps("gradient_norm"), ElementsAre(0, 0, 0, 0));
  EXPECT_TRUE(SamplesOfStep(1)[0].at("left_out").get<bool>());
}

// Wherever the workers leave it, a step is done with the answers that it had.
TEST_F(TrainerLoopTest, AllAnswersOfAStepAreRecalled) {
  Config& config = loaded_.config;
  config.trainer.steps = 1;
  answer_of_ = [this](const SamplingKey& key) {
    return Boxed(key.sample % kMaxAttempts >= 2 ? "123" : "5");
  };
  for (const char* source : {"dual", "verified"}) {
    config.rollout.source = source;
    config.run.name = absl::StrCat(source, "-whole");
    num_left_ = -1;
    ASSERT_TRUE(Run(0).ok());
    const std::vector<double> losses = MetricOfSteps("loss");
    const auto all = static_cast<int64_t>(rollouts_->keys_.size());
    for (int64_t answers = 1; answers < all; ++answers) {
      config.run.name = absl::StrCat(source, "-", answers);
      num_left_ = answers;
      EXPECT_TRUE(absl::IsUnavailable(Run(0)));
      num_left_ = all - answers;
      ASSERT_TRUE(Run(0).ok()) << "it samples no answer again";
      EXPECT_EQ(MetricOfSteps("loss"), losses) << "bit for bit";
    }
  }
}

TEST_F(TrainerLoopTest, AnAnswerOfAnotherPolicyIsRefused) {
  lies_ = true;
  for (const int64_t max_staleness : {0, 1}) {
    const absl::Status status = Run(max_staleness);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("an answer to step 1 was sampled by version 1"));
  }
}

}  // namespace
}  // namespace dapd
