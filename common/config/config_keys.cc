#include "common/config/config_keys.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/config/term_yaml.h"
#include "common/config/yaml_text.h"

namespace dapd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMillion = 1e6;

ConfigKey Text(std::string name,
               std::string* target,
               std::string help,
               std::vector<std::string> choices = {}) {
  ConfigKey key{std::move(name), target, std::move(help)};
  key.choices = std::move(choices);
  return key;
}

template <typename Number>
ConfigKey Range(std::string name,
                Number* target,
                double min,
                double max,
                std::string help) {
  ConfigKey key{std::move(name), target, std::move(help)};
  key.min = min;
  key.max = max;
  return key;
}

ConfigKey Above(std::string name,
                double* target,
                double min,
                double max,
                std::string help) {
  ConfigKey key = Range(std::move(name), target, min, max, std::move(help));
  key.above_min = true;
  return key;
}

ConfigKey Any(std::string name, ConfigKey::Target target, std::string help) {
  return {std::move(name), target, std::move(help)};
}

template <typename List, typename Format>
std::string FormatList(const List& list, Format format) {
  std::vector<std::string> parts;
  for (const auto& item : list) parts.push_back(format(item));
  return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
}

}  // namespace

std::vector<ConfigKey> ConfigKeys(Config& c) {
  return {
      Text("run.name", &c.run.name, "Name of the run and of its folder."),
      Text("run.output_dir",
           &c.run.output_dir,
           "Folder that holds the run folders."),
      Any("run.seed",
          &c.run.seed,
          "Seed of the data order, the adapter's start and all sampling."),
      Range("run.num_threads",
            &c.run.num_threads,
            0,
            4096,
            "Compute threads a process; 0: OMP_NUM_THREADS, else one a core "
            "(`dapd run` shares the "
            "cores among the workers of a role)."),
      Range("run.rollout_workers",
            &c.run.rollout_workers,
            1,
            256,
            "Rollout processes that `dapd run` starts."),
      Range("run.teacher_workers",
            &c.run.teacher_workers,
            1,
            256,
            "Teacher processes that `dapd run` starts."),
      Text("run.resume",
           &c.run.resume,
           "What a trainer does with a run folder that an earlier attempt "
           "left: go on, or refuse.",
           {"auto", "never"}),
      Text("model.path",
           &c.model.path,
           "Hugging Face folder of the base model (qwen3, qwen2 or llama)."),
      Text("model.precision",
           &c.model.precision,
           "Precision of the base weights.",
           {"float32", "bfloat16"}),
      Text("model.device",
           &c.model.device,
           "Where the model is computed.",
           {"auto", "cpu", "cuda"}),
      Range("lora.rank", &c.lora.rank, 1, 4096, "Rank of the adapter."),
      Above("lora.alpha",
            &c.lora.alpha,
            0,
            kMillion,
            "The update is scaled by alpha / rank."),
      [&c] {
        ConfigKey key = Any("lora.targets",
                            &c.lora.targets,
                            "Projections that get an adapter.");
        key.choices = {"q_proj",
                       "k_proj",
                       "v_proj",
                       "o_proj",
                       "gate_proj",
                       "up_proj",
                       "down_proj"};
        return key;
      }(),
      Text("data.path",
           &c.data.path,
           "Problems with reference solutions: .jsonl, .jsonl.gz or "
           ".parquet."),
      Text("data.problem_column",
           &c.data.problem_column,
           "Column of the problem."),
      Text("data.solution_column",
           &c.data.solution_column,
           "Column of the reference solution."),
      Text("data.answer_column",
           &c.data.answer_column,
           "Column of the short answer; may be missing from the data."),
      Text("data.on_bad_row",
           &c.data.on_bad_row,
           "What to do about a row that cannot be used.",
           {"fail", "skip"}),
      Text("objective.preset",
           &c.objective.preset,
           "Named list of terms.",
           {"dapd"}),
      Any("objective.terms",
          &c.objective.terms,
          "Replaces the preset's terms: a list of {name, student, teacher, "
          "teacher_weights, weight, divergence, clip, ...}; docs/objective.md "
          "has every field."),
      Above("objective.temperature",
            &c.objective.temperature,
            0,
            100,
            "T of both distributions of every term."),
      Range("objective.lambda",
            &c.objective.lambda,
            0,
            1,
            "Share of the reference-guided direction."),
      Above("objective.kappa",
            &c.objective.kappa,
            0,
            kMillion,
            "Sum of the preset's weights."),
      Range("objective.reference_guided.beta_inference",
            &c.objective.reference_guided.beta_inference,
            0,
            kMillion,
            "Inference anchor, reference-guided."),
      Range("objective.reference_guided.beta_privileged",
            &c.objective.reference_guided.beta_privileged,
            0,
            kMillion,
            "Privileged anchor, reference-guided."),
      Range("objective.rollout_guided.beta_inference",
            &c.objective.rollout_guided.beta_inference,
            0,
            kMillion,
            "Inference anchor, rollout-guided."),
      Range("objective.rollout_guided.beta_privileged",
            &c.objective.rollout_guided.beta_privileged,
            0,
            kMillion,
            "Privileged anchor, rollout-guided."),
      Above("objective.component_clip",
            &c.objective.component_clip,
            0,
            kInfinity,
            "Clip of each vocabulary entry's contribution; .inf: none."),
      Text("objective.self_rollout",
           &c.objective.self_rollout,
           "How the Self view shows a rollout: a second copy behind the first, "
           "or inside the privileged prompt.",
           {"append", "template"}),
      Range("objective.max_reference_tokens",
            &c.objective.max_reference_tokens,
            1,
            kMillion,
            "Scored tokens of a reference solution, at most."),
      Any("rollout.addresses",
          &c.rollout.addresses,
          "host:port of the rollout workers; a name with several addresses "
          "stands for all of them."),
      Text("rollout.listen",
           &c.rollout.listen,
           "Where a rollout worker listens."),
      Range("rollout.max_new_tokens",
            &c.rollout.max_new_tokens,
            1,
            kMillion,
            "Longest answer."),
      Range("rollout.temperature",
            &c.rollout.temperature,
            0,
            100,
            "Sampling temperature; 0: greedy."),
      Above("rollout.top_p", &c.rollout.top_p, 0, 1, "Nucleus sampling."),
      Range("rollout.top_k",
            &c.rollout.top_k,
            0,
            kMillion,
            "Most probable tokens to sample from; 0: all."),
      Range("rollout.max_staleness",
            &c.rollout.max_staleness,
            0,
            1,
            "Optimizer steps by which the policy that samples lags behind the "
            "one that is trained. 0: none, strictly on-policy. 1: exactly one "
            "from step 2 on; the workers sample a step while the one before "
            "it is trained, and teacher.streaming has no effect."),
      Range("rollout.slots",
            &c.rollout.slots,
            1,
            1024,
            "Answers that one worker decodes side by side."),
      Range("rollout.kv_memory_mib",
            &c.rollout.kv_memory_mib,
            0,
            100 * kMillion,
            "Memory of a worker for keys and values. Answers that do not fit "
            "beside the running ones wait. 0: half of what is available when "
            "the model has been read."),
      Range("rollout.tensor_parallel",
            &c.rollout.tensor_parallel,
            1,
            64,
            "Processes of one machine that compute a worker's model together, "
            "each with its share of every layer, on GPUs one each. The worker "
            "starts the others."),
      Any("teacher.addresses",
          &c.teacher.addresses,
          "host:port of the teacher workers, as rollout.addresses."),
      Text("teacher.listen",
           &c.teacher.listen,
           "Where a teacher worker listens."),
      Range("teacher.connections",
            &c.teacher.connections,
            1,
            16,
            "Connections of the trainer to each teacher worker. One carries "
            "1 to 2 GB/s: take 2 to 4 on networks beyond 10 Gbit/s."),
      Text("teacher.payload",
           &c.teacher.payload,
           "What a teacher returns per scored token.",
           {"hidden_states", "logits", "top_k"}),
      Range("teacher.top_k",
            &c.teacher.top_k,
            1,
            kMillion,
            "Entries a token of the top_k payload."),
      Range("teacher.snapshot_interval",
            &c.teacher.snapshot_interval,
            1,
            kMillion,
            "Steps between two refreshes of the snapshot."),
      Above("teacher.ema_rate",
            &c.teacher.ema_rate,
            0,
            1,
            "Of the moving average of the adapter, for terms with "
            "teacher_weights ema: after each step it becomes (1 - rate) "
            "times itself plus rate times the adapter."),
      Any("teacher.streaming",
          &c.teacher.streaming,
          "Whether teachers compute behind the sampler, as its tokens come. "
          "Changes no result."),
      Range("teacher.chunk_tokens",
            &c.teacher.chunk_tokens,
            8,
            65536,
            "Tokens of a view that a teacher computes at a time, alike with "
            "and without streaming."),
      Range("teacher.prefix_memory_mib",
            &c.teacher.prefix_memory_mib,
            0,
            kMillion,
            "MiB of keys, values and hidden states that one teacher worker "
            "keeps of prefixes; 0: none."),
      Text("trainer.listen",
           &c.trainer.listen,
           "Where the trainer answers `dapd status`."),
      Range("trainer.batch_size",
            &c.trainer.batch_size,
            1,
            kMillion,
            "Problems an optimizer step."),
      Range("trainer.micro_batch_size",
            &c.trainer.micro_batch_size,
            1,
            kMillion,
            "Samples that share one token mean."),
      Range("trainer.steps",
            &c.trainer.steps,
            1,
            1e9,
            "Optimizer steps of the run."),
      Above("trainer.learning_rate",
            &c.trainer.learning_rate,
            0,
            10,
            "Rate of the first step."),
      Range("trainer.schedule_steps",
            &c.trainer.schedule_steps,
            1,
            1e9,
            "Steps over which the rate falls linearly to zero."),
      Above("trainer.max_grad_norm",
            &c.trainer.max_grad_norm,
            0,
            kInfinity,
            "Clip of the global gradient norm; .inf: none."),
      Range("trainer.activation_memory_mib",
            &c.trainer.activation_memory_mib,
            0,
            kMillion,
            "MiB of activations that a pass keeps for the backward pass, in "
            "which the layers beyond them run again; 0 keeps only each "
            "layer's input. Changes no result."),
      Range("trainer.pack_tokens",
            &c.trainer.pack_tokens,
            1,
            kMillion,
            "Tokens of several samples that pass through the model side by "
            "side; a sample must fit alone."),
      Any("trainer.train_while_sampling",
          &c.trainer.train_while_sampling,
          "Whether a micro-batch is trained as soon as its answers are scored, "
          "while later ones are still sampled, and forward passes are run "
          "before that. Changes no result."),
      Range("trainer.ahead_memory_mib",
            &c.trainer.ahead_memory_mib,
            0,
            kMillion,
            "MiB that may be kept of what is trained ahead: gradients of "
            "micro-batches that wait for an earlier one, in up to half of it, "
            "and forward passes of references and unfinished answers. 0: none. "
            "Changes no result."),
      Range("trainer.chunk_tokens",
            &c.trainer.chunk_tokens,
            0,
            kMillion,
            "Tokens of prompt and answer that pass forward together, ahead or "
            "not, where the activations of the longest answers' pack take more "
            "than 4 GiB; no layer keeps them then. 0: the whole answer, once "
            "it is there."),
      Above("trainer.rpc_timeout_seconds",
            &c.trainer.rpc_timeout_seconds,
            0,
            kMillion,
            "Time a worker has for one rollout or score."),
      Above("trainer.peer_timeout_seconds",
            &c.trainer.peer_timeout_seconds,
            0,
            kMillion,
            "Time without any usable worker before the run ends."),
      Range("trainer.ranks",
            &c.trainer.ranks,
            1,
            4096,
            "Trainer processes that share each batch; `dapd run --ranks` "
            "starts them."),
      Range("trainer.rank",
            &c.trainer.rank,
            0,
            4095,
            "Which of them this process is; rank 0 records and saves."),
      Text("trainer.rendezvous",
           &c.trainer.rendezvous,
           "host:port at which rank 0 listens and the others find it."),
      Above("trainer.rank_timeout_seconds",
            &c.trainer.rank_timeout_seconds,
            0,
            kMillion,
            "How long rank 0 waits for the others inside a step."),
      Any("trainer.shard_base",
          &c.trainer.shard_base,
          "Whether each rank holds only its share of the base's layers and all "
          "gather each layer while the one before it is computed: for a base "
          "that leaves no room on one device. Changes no result; nothing is "
          "trained while answers are sampled."),
      Text("trainer.when_done",
           &c.trainer.when_done,
           "At the end of the run: exit, or serve status and metrics until a "
           "signal, for supervisors that start again whatever exits.",
           {"exit", "serve"}),
      Text("evaluation.path",
           &c.evaluation.path,
           "Held-out problems, measured before and after; empty: none."),
      Range("evaluation.samples",
            &c.evaluation.samples,
            1,
            1024,
            "Answers a held-out problem."),
      Range("evaluation.temperature",
            &c.evaluation.temperature,
            0,
            100,
            "0: greedy."),
      Above("evaluation.top_p", &c.evaluation.top_p, 0, 1, "Nucleus sampling."),
      Range("evaluation.top_k", &c.evaluation.top_k, 0, kMillion, "0: all."),
      Range("evaluation.max_new_tokens",
            &c.evaluation.max_new_tokens,
            0,
            kMillion,
            "0: rollout.max_new_tokens."),
      Range("evaluation.kl_problems",
            &c.evaluation.kl_problems,
            0,
            kMillion,
            "Held-out problems on which each term's true KL is measured."),
      Range("checkpoint.interval",
            &c.checkpoint.interval,
            1,
            1e9,
            "Steps between two checkpoints."),
      Range("checkpoint.keep",
            &c.checkpoint.keep,
            1,
            kMillion,
            "Checkpoints that stay."),
      Text("checkpoint.on_write_error",
           &c.checkpoint.on_write_error,
           "When the disk refuses: training pauses until it takes the write, "
           "goes on without, or ends.",
           {"pause", "continue", "fail"}),
      Text("metrics.rollout_listen",
           &c.metrics.rollout_listen,
           "Prometheus endpoint of a rollout worker; empty: none."),
      Text("metrics.teacher_listen",
           &c.metrics.teacher_listen,
           "Prometheus endpoint of a teacher worker; empty: none."),
      Text("metrics.trainer_listen",
           &c.metrics.trainer_listen,
           "Prometheus endpoint of the trainer; empty: none."),
      Any("metrics.allowed_hosts",
          &c.metrics.allowed_hosts,
          "Names in URLs that the endpoints answer to, besides IP addresses, "
          "names without a dot, the machine's own and those of Kubernetes "
          "services; any other name is refused, as a foreign web page may "
          "stand behind it."),
      Any("security.insecure",
          &c.security.insecure,
          "Allow plaintext connections, from whoever reaches them, on "
          "addresses "
          "other than loopback."),
      Any("security.insecure_metrics",
          &c.security.insecure_metrics,
          "Allow plaintext HTTP (metrics, health, status: all read-only) on "
          "addresses other than loopback."),
      Text("security.certificate",
           &c.security.certificate,
           "This process's certificate in a PEM file, intermediates behind it; "
           "names its role by the URI spiffe://dapd/ROLE. Given: mutual TLS on "
           "every gRPC connection. Read again when it changes."),
      Text("security.private_key",
           &c.security.private_key,
           "The certificate's private key in a PEM file that nobody else can "
           "read (mode 600)."),
      Text("security.ca",
           &c.security.ca,
           "The authorities that peers' certificates must come from, in a PEM "
           "file."),
      Text("security.token",
           &c.security.token,
           "A file, mode 600, with the bearer token that this process "
           "presents."),
      Text(
          "security.tokens.viewer",
          &c.security.tokens.viewer,
          "A file, mode 600, with the bearer tokens, one a line, that a server "
          "accepts for the role viewer: it may look."),
      Text("security.tokens.trainer",
           &c.security.tokens.trainer,
           "The same for the role trainer: it may drive workers."),
      Text("security.tokens.admin",
           &c.security.tokens.admin,
           "The same for the role admin: it may do everything."),
  };
}

std::string TypeName(const ConfigKey& key) {
  struct Name {
    std::string operator()(std::string*) const { return "string"; }
    std::string operator()(bool*) const { return "boolean"; }
    std::string operator()(int64_t*) const { return "integer"; }
    std::string operator()(uint64_t*) const { return "integer"; }
    std::string operator()(double*) const { return "number"; }
    std::string operator()(std::vector<std::string>*) const {
      return "list of strings";
    }
    std::string operator()(std::vector<Term>*) const { return "list of terms"; }
  };
  return std::visit(Name{}, key.target);
}

std::string AcceptedValues(const ConfigKey& key) {
  if (!key.choices.empty()) return absl::StrJoin(key.choices, ", ");
  const bool has_min = std::isfinite(key.min);
  const bool has_max = std::isfinite(key.max);
  if (key.min == key.max) return FormatDouble(key.min);
  if (has_min && has_max) {
    return absl::StrCat(key.above_min ? "above " : "",
                        FormatDouble(key.min),
                        " to ",
                        FormatDouble(key.max));
  }
  if (has_min) {
    return absl::StrCat(key.above_min ? "above " : "at least ",
                        FormatDouble(key.min));
  }
  return TypeName(key);
}

std::string FormatValue(const ConfigKey& key) {
  struct Format {
    std::string operator()(std::string* v) const { return Quote(*v); }
    std::string operator()(bool* v) const { return *v ? "true" : "false"; }
    std::string operator()(int64_t* v) const { return absl::StrCat(*v); }
    std::string operator()(uint64_t* v) const { return absl::StrCat(*v); }
    std::string operator()(double* v) const { return FormatDouble(*v); }
    std::string operator()(std::vector<std::string>* v) const {
      return FormatList(*v, Quote);
    }
    std::string operator()(std::vector<Term>* v) const {
      return FormatList(*v, FormatTerm);
    }
  };
  return std::visit(Format{}, key.target);
}

}  // namespace dapd
