// The configuration of all services as plain structs: each service reads its
// part of one YAML file. Section and field names are the YAML keys. The key
// tables in common/config/keys/ contain the meaning, default and range of every
// key, and docs/configuration.md is generated from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/enum_names.h"
#include "common/base/log.h"
#include "common/config/released_prompts.h"
#include "common/gpus/gpu.h"
#include "common/terms/payload.h"
#include "common/terms/term.h"

namespace dapd {

// The treatment of a run folder that an earlier attempt left.
enum class Resume { kAuto, kNever };
constexpr auto NameTable(Resume) { return std::array{"auto", "never"}; }

// The exit code of a worker that a signal ended: 0 or ExitCode::kInterrupted.
enum class StoppedWorker { kDone, kInterrupted };
constexpr auto NameTable(StoppedWorker) {
  return std::array{"done", "interrupted"};
}

enum class Precision { kFloat32, kBfloat16 };
constexpr auto NameTable(Precision) {
  return std::array{"float32", "bfloat16"};
}

// The precision of a sampler's keys and values: as the model, or float8.h.
enum class KvPrecision { kModel, kFloat8 };
constexpr auto NameTable(KvPrecision) { return std::array{"model", "float8"}; }

enum class OnBadRow { kFail, kSkip };
constexpr auto NameTable(OnBadRow) { return std::array{"fail", "skip"}; }

// When SDPO's self-teacher (common/data/self_teacher.h) reads what is wrong
// with an answer.
enum class FeedbackRule {
  kNever,
  kWithoutSibling,  // only where there is no sibling to show
  kAlways,
};
constexpr auto NameTable(FeedbackRule) {
  return std::array{"never", "without_sibling", "always"};
}

// The way the Self view shows a rollout: a second copy after the first, or
// inside the privileged prompt.
enum class SelfRollout { kAppend, kTemplate };
constexpr auto NameTable(SelfRollout) {
  return std::array{"append", "template"};
}

// The end of a prompt that loses tokens when the prompt is too long.
enum class TruncationSide { kRight, kLeft };
constexpr auto NameTable(TruncationSide) { return std::array{"right", "left"}; }

// The source of the references; services/trainer/step/answer_rules.h.
enum class ReferenceSource { kGiven, kDual, kVerified };
constexpr auto NameTable(ReferenceSource) {
  return std::array{"reference", "dual", "verified"};
}

// The treatment of a sample without a right candidate for the reference.
enum class Unverified { kFirst, kSkip };
constexpr auto NameTable(Unverified) { return std::array{"first", "skip"}; }

// The first value of the moving average.
enum class EmaStart { kAdapter, kFirstUpdate };
constexpr auto NameTable(EmaStart) {
  return std::array{"adapter", "first_update"};
}

// The behaviour of a trainer at the end of its run.
enum class WhenDone { kExit, kServe };
constexpr auto NameTable(WhenDone) { return std::array{"exit", "serve"}; }

// The user's message of an evaluation: the None view's, or the problem and the
// instruction alone, without "Problem: " (OPSD's evaluation).
enum class EvaluationForm { kTraining, kPlain };
constexpr auto NameTable(EvaluationForm) {
  return std::array{"training", "plain"};
}

// services/trainer/record/full_disk_rule.h.
enum class OnWriteError { kPause, kContinue, kFail };
constexpr auto NameTable(OnWriteError) {
  return std::array{"pause", "continue", "fail"};
}

// Says how a run goes on when its grader has not graded an answer
// (common/grader/grading_desk.h).
enum class OnUngraded { kUngraded, kFail };
constexpr auto NameTable(OnUngraded) { return std::array{"ungraded", "fail"}; }

struct RunConfig {
  std::string name = "dapd";
  std::string output_dir = "runs";
  uint64_t seed = 42;
  int64_t num_threads = 0;      // compute threads per process; 0: all cores
  int64_t rollout_workers = 1;  // `dapd run`: rollout processes to start
  int64_t teacher_workers = 1;
  std::string gpus = "auto";        // `dapd run`: auto | how many GPUs it uses
  int64_t gpu_processes = 1;        // that share a GPU
  double gpu_wait_seconds = 300.0;  // for memory that another process holds
  Resume resume = Resume::kAuto;
  // Where the end of the run is reported; see common/notify/webhook.h.
  std::string notify_url;  // empty: nobody
  std::string notify_secret_file;
  std::string notify_ca_file;
  double notify_timeout_seconds = 10.0;
  StoppedWorker stopped_worker = StoppedWorker::kDone;
};

struct ModelSection {
  std::string path;  // common/hub/model_folder.h
  std::string name;  // id on the hub; empty: path names it
  Precision precision = Precision::kBfloat16;
  DeviceChoice device = DeviceChoice::kAuto;
  bool deterministic = false;  // the same bits on the same GPU
};

struct LoraSection {
  int64_t rank = 64;
  double alpha = 128.0;
  std::vector<std::string> targets = {"q_proj",
                                      "k_proj",
                                      "v_proj",
                                      "o_proj",
                                      "gate_proj",
                                      "up_proj",
                                      "down_proj"};
  std::string start_from;  // an adapter to train on; empty: a fresh one
};

struct DataSection {
  std::string path;
  std::string problem_column = "problem";
  std::string solution_column = "solution";
  std::string answer_column = "answer";
  std::string teacher_column;  // empty: no row names its teacher
  std::string context_column = "context";
  // Empty: rows have problems and solutions, and no tools.
  std::string messages_column;
  std::string tools_column;
  std::string system;  // of rows whose messages have none; empty: no message
  OnBadRow on_bad_row = OnBadRow::kFail;
  int64_t max_prompt_tokens = 20000;
};

// The teachers of a preset: each a set of weights of the student's own model
// (WeightSet), the name of a further teacher, or `row` (common/terms/target.h).
struct TeacherChoice {
  std::vector<std::string> names = {NameOf(WeightSet::kBase)};
};

struct ObjectiveSection {
  std::string preset = "dapd";
  std::vector<Term> terms;  // given: replaces the preset's terms
  double temperature = 1.1;
  double lambda = 0.2;
  double kappa = 2.0;
  struct Guided {
    double beta_inference = 1.0;
    double beta_privileged = 1.0;
  };
  Guided reference_guided{1.0, 1.0};
  Guided rollout_guided{1.0, 2.0};
  // These apply to all terms of a preset.
  DivergenceKind divergence = DivergenceKind::kForwardKl;
  double beta = 0.5;
  double component_clip = 0.05;
  SupportKind support = SupportKind::kFull;
  int64_t top_k = 100;
  bool tail = true;
  Reduction reduction = Reduction::kMicroToken;
  int64_t skip_tokens = 0;
  TeacherChoice teacher_weights;  // of presets with one teacher a term
  // For `preset: dapd`.
  struct Dapd {
    std::string cross_weights;  // empty: the weights of the paper
  };
  Dapd dapd;
  struct Purified {
    bool recentre = true;
    double soft_clip = 10.0;
    double beta = 1.0;
  };
  Purified purified;
  struct Dopd {
    double likely_factor = 0.6;
    double unlikely_factor = 0.3;
    double trim = 0.05;
  };
  Dopd dopd;
  // For `preset: gkd`.
  struct Gkd {
    double reference_share = 0.5;  // of the steps, see step_kind.h
  };
  Gkd gkd;
  // For `preset: sdpo`.
  struct Sdpo {
    // kJensenShannon or kReverseKl.
    DivergenceKind divergence = DivergenceKind::kJensenShannon;
    int64_t top_k = 100;
    FeedbackRule feedback = FeedbackRule::kNever;
  };
  Sdpo sdpo;
  SelfRollout self_rollout = SelfRollout::kAppend;
  int64_t max_reference_tokens = 1024;
};

// Templates of the user messages; see prompt_template.h.
struct PromptsSection {
  std::string system;  // empty: data.system decides
  std::string none = kReleasedNone;
  std::string privileged = kReleasedPrivileged;
  std::string demonstration = kReleasedDemonstration;
  std::string probe = kReleasedProbe;
  std::string sibling = kReleasedSibling;
  std::string sibling_solution = kReleasedSiblingSolution;
  std::string sibling_feedback = kReleasedSiblingFeedback;
  std::string feedback_wrong = kReleasedFeedbackWrong;
  std::string feedback_unboxed = kReleasedFeedbackUnboxed;
  std::string feedback_truncated = kReleasedFeedbackTruncated;
  // Whether the template's thinking is on: in what is sampled and in all
  // prompts but the following; in prompts that show an answer other than the
  // scored one.
  bool thinking = false;
  bool privileged_thinking = true;
  bool special_tokens = true;  // the template's, in the sampler's prompt
  int64_t max_tokens = 0;      // 0: as data.max_prompt_tokens says
  TruncationSide truncation_side = TruncationSide::kRight;
};

struct RolloutSection {
  std::vector<std::string> addresses = {"127.0.0.1:7001"};
  std::string listen = "127.0.0.1:7001";
  int64_t max_new_tokens = 1024;
  double temperature = 1.1;
  double top_p = 0.95;
  int64_t top_k = 20;
  // The answers of a sample; see services/trainer/step/answer_rules.h.
  ReferenceSource source = ReferenceSource::kGiven;
  Unverified unverified = Unverified::kFirst;
  int64_t group_size = 1;
  // In policies; see services/trainer/step/batch_trainer.h.
  int64_t max_staleness = 0;
  int64_t slots = 32;         // sequences decoded side by side in one worker
  int64_t kv_memory_mib = 0;  // 0: what the machine can spare
  KvPrecision kv_precision = KvPrecision::kModel;
  int64_t tensor_parallel = 1;  // processes that compute a worker's model
};

struct TeacherSection {
  std::vector<std::string> addresses = {"127.0.0.1:7002"};
  std::string listen = "127.0.0.1:7002";
  int64_t connections = 1;  // to each worker
  Payload payload = Payload::kHiddenStates;
  int64_t top_k = 64;  // entries a token of a top_k payload
  int64_t snapshot_interval = 100;
  double ema_rate = 0.01;
  EmaStart ema_start = EmaStart::kAdapter;
  bool streaming = true;
  int64_t chunk_tokens = 0;          // see common/model/fast/chunk_forward.h
  int64_t prefix_memory_mib = 2048;  // of one worker
  int64_t mps_percentage = 0;        // of a GPU's multiprocessors; 0: all
};

// Another model that teaches, with workers of its own (docs/teachers.md).
struct TeacherModel {
  std::string name;
  std::string path;     // as model.path
  std::string adapter;  // a PEFT adapter that its workers apply; empty: none
  std::vector<std::string> addresses;  // as teacher.addresses
  std::string listen;
  std::string metrics_listen;  // empty: no endpoint
  int64_t workers = 1;         // `dapd run`: processes to start

  bool operator==(const TeacherModel&) const = default;
};
inline constexpr size_t kMaxTeachers = 8;

struct TrainerSection {
  std::string listen = "127.0.0.1:7003";
  int64_t batch_size = 32;
  int64_t micro_batch_size = 2;
  int64_t steps = 200;
  double learning_rate = 5e-6;
  int64_t schedule_steps = 500;
  double max_grad_norm = 0.1;
  // -1 in both: the memory that the device leaves, see
  // common/model/spec/pass_memory.h.
  int64_t activation_memory_mib = -1;
  int64_t pack_tokens = 16384;  // of one pass, see objective/micro_batch.h
  bool train_while_sampling = true;
  int64_t ahead_memory_mib = -1;        // of what is trained ahead
  int64_t chunk_tokens = 512;           // see common/objective/pack_plan.h
  double rpc_timeout_seconds = 600.0;   // one sample's rollout or score
  double peer_timeout_seconds = 300.0;  // without any usable worker
  int64_t ranks = 1;                    // data-parallel trainer processes
  int64_t rank = 0;                     // which of them this one is
  int64_t ranks_per_machine = 0;        // 0: one process is one rank
  int64_t machines = 1;                 // each with ranks_per_machine
  int64_t machine = 0;                  // which of them this one is
  std::string rendezvous = "127.0.0.1:7004";  // of rank 0, for the others
  double rank_timeout_seconds = 600.0;        // for a rank to reach a sum
  bool shard_base = false;                    // each rank holds its share of it
  Precision logits_precision = Precision::kFloat32;  // of the loss
  WhenDone when_done = WhenDone::kExit;
  int64_t timeline_steps = 0;  // 0: none
};

// A grader of the user's own: common/grader/grading_desk.h. Without a command
// and a URL, common/data/grade_answer.h grades.
struct GraderSection {
  std::vector<std::string> command;  // program and arguments; empty: none
  std::string url;                   // empty: none
  std::string secret_file;
  std::string ca_file;
  double timeout_seconds = 60.0;  // of an answer, or of a request
  int64_t workers = 2;            // children or requests at a time
  int64_t memory_mib = 4096;      // of a child's address space; 0: no limit
  int64_t max_output_bytes = 1 << 20;
  int64_t max_feedback_bytes = 4096;
  int64_t batch = 16;   // answers of a request
  int64_t retries = 4;  // of a request
  OnUngraded on_error = OnUngraded::kUngraded;

  bool is_given() const { return !command.empty() || !url.empty(); }
};

// Held-out measurements before and after training.
struct EvaluationSection {
  std::string path;          // empty: no evaluation
  int64_t samples = 1;       // answers per problem
  double temperature = 0.0;  // 0: greedy
  double top_p = 1.0;
  int64_t top_k = 0;
  int64_t max_new_tokens = 0;  // 0: rollout.max_new_tokens
  int64_t kl_problems = 8;     // held-out problems for the unclipped KL
  int64_t interval = 0;        // steps between evaluations; 0: before and after
  EvaluationForm prompt = EvaluationForm::kTraining;
  bool thinking = false;
  std::string marker;   // a text whose share of answers is measured, or empty
  bool claims = false;  // whether the probability of claims is measured
};

struct CheckpointSection {
  int64_t interval = 50;
  int64_t keep = 2;  // 0: all
  OnWriteError on_write_error = OnWriteError::kPause;
  std::string copy_to;      // empty: nowhere
  std::string copy_python;  // empty: FindPython
  double copy_timeout_seconds = 120;
  double copy_wait_seconds = 600;
};

struct MetricsSection {
  std::string rollout_listen = "127.0.0.1:9101";  // empty: no endpoint
  std::string teacher_listen = "127.0.0.1:9102";
  std::string trainer_listen = "127.0.0.1:9103";
  // See common/metrics/host_check.h.
  std::vector<std::string> allowed_hosts = {"localhost"};
};

// common/base/log.h.
struct LogSection {
  LogFormat format = LogFormat::kText;
  Severity level = Severity::kInfo;
};

// common/security/security.h explains the keys together.
struct SecuritySection {
  bool insecure = false;          // plaintext gRPC on any address
  bool insecure_metrics = false;  // plaintext HTTP on any address
  std::string certificate;        // PEM files, all three or none
  std::string private_key;
  std::string ca;
  std::string token;  // file with the token this process presents
  struct Tokens {     // files with the tokens a server accepts, by role
    std::string viewer;
    std::string trainer;
    std::string admin;
  };
  Tokens tokens;
};

struct Config {
  RunConfig run;
  ModelSection model;
  LoraSection lora;
  DataSection data;
  ObjectiveSection objective;
  PromptsSection prompts;
  RolloutSection rollout;
  TeacherSection teacher;
  std::vector<TeacherModel> teachers;
  TrainerSection trainer;
  GraderSection grader;
  EvaluationSection evaluation;
  CheckpointSection checkpoint;
  MetricsSection metrics;
  LogSection log;
  SecuritySection security;
};

}  // namespace dapd
