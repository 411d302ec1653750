// The configuration of all services, as plain structs: one YAML file, of which
// each service reads its part. Section and field names are the YAML keys.
// Every key's meaning, default and range stand in the key tables of
// common/config/keys/, from which docs/configuration.md is generated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/released_prompts.h"
#include "common/terms/term.h"

namespace dapd {

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
  std::string resume = "auto";      // auto | never
  // Who is told of the run's end; see common/notify/webhook.h.
  std::string notify_url;  // empty: nobody
  std::string notify_secret_file;
  std::string notify_ca_file;
  double notify_timeout_seconds = 10.0;
  std::string stopped_worker = "done";  // done | interrupted
};

struct ModelSection {
  std::string path;                    // common/hub/model_folder.h
  std::string name;                    // for others; empty: as path has it
  std::string precision = "bfloat16";  // float32 | bfloat16
  std::string device = "auto";         // auto | cpu | cuda
  bool deterministic = false;          // the same bits on the same GPU
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
  std::string on_bad_row = "fail";  // fail | skip
  int64_t max_prompt_tokens = 20000;
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
  // Of all of a preset's terms.
  std::string divergence = "forward_kl";
  double beta = 0.5;
  double component_clip = 0.05;
  std::string support = "full";
  int64_t top_k = 100;
  bool tail = true;
  std::string reduction = "micro_token";
  int64_t skip_tokens = 0;
  std::string teacher_weights = "base";  // of presets with one teacher
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
  // Of `preset: sdpo`.
  struct Sdpo {
    std::string divergence = "jensen_shannon";  // jensen_shannon | reverse_kl
    int64_t top_k = 100;
    std::string feedback = "never";  // never | without_sibling | always
  };
  Sdpo sdpo;
  std::string self_rollout = "append";  // append | template
  int64_t max_reference_tokens = 1024;
};

// Templates of the user messages; see prompt_template.h.
struct PromptsSection {
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
  bool special_tokens = true;  // in the sampler's prompt, the template's
  int64_t max_tokens = 0;      // 0: as data.max_prompt_tokens says
  std::string truncation_side = "right";  // right | left
};

struct RolloutSection {
  std::vector<std::string> addresses = {"127.0.0.1:7001"};
  std::string listen = "127.0.0.1:7001";
  int64_t max_new_tokens = 1024;
  double temperature = 1.1;
  double top_p = 0.95;
  int64_t top_k = 20;
  // Which answers a sample has; see services/trainer/step/answer_rules.h.
  std::string source = "reference";  // reference | dual | verified
  std::string unverified = "first";  // first | skip
  int64_t group_size = 1;
  // In policies; see services/trainer/step/batch_trainer.h.
  int64_t max_staleness = 0;
  int64_t slots = 32;           // sequences decoded side by side in one worker
  int64_t kv_memory_mib = 0;    // 0: what the machine can spare
  int64_t tensor_parallel = 1;  // processes that compute a worker's model
};

struct TeacherSection {
  std::vector<std::string> addresses = {"127.0.0.1:7002"};
  std::string listen = "127.0.0.1:7002";
  int64_t connections = 1;                // to each worker
  std::string payload = "hidden_states";  // hidden_states | logits | top_k
  int64_t top_k = 64;                     // entries a token of a top_k payload
  int64_t snapshot_interval = 100;
  double ema_rate = 0.01;
  std::string ema_start = "adapter";  // adapter | first_update
  bool streaming = true;
  int64_t chunk_tokens = 0;          // see common/model/fast/chunk_forward.h
  int64_t prefix_memory_mib = 2048;  // of one worker
  int64_t mps_percentage = 0;        // of a GPU's multiprocessors; 0: all
};

struct TrainerSection {
  std::string listen = "127.0.0.1:7003";
  int64_t batch_size = 32;
  int64_t micro_batch_size = 2;
  int64_t steps = 200;
  double learning_rate = 5e-6;
  int64_t schedule_steps = 500;
  double max_grad_norm = 0.1;
  // Of both -1: what the device leaves, see common/model/spec/pass_memory.h.
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
  std::string when_done = "exit";             // exit | serve
  int64_t timeline_steps = 0;                 // 0: none
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
  std::string prompt = "training";  // training | plain
  bool thinking = false;
  std::string marker;  // a text whose share of answers is measured, or empty
};

struct CheckpointSection {
  int64_t interval = 50;
  int64_t keep = 2;                      // 0: all
  std::string on_write_error = "pause";  // pause | continue | fail
  std::string copy_to;                   // empty: nowhere
  std::string copy_python;               // empty: FindPython
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
  std::string format = "text";  // text | json
  std::string level = "info";   // info | warning | error
};

// What each key means together: common/security/security.h.
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
  TrainerSection trainer;
  EvaluationSection evaluation;
  CheckpointSection checkpoint;
  MetricsSection metrics;
  LogSection log;
  SecuritySection security;
};

}  // namespace dapd
