#include "common/model/spec/step_cost.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "common/config/preset_terms.h"

namespace dapd {
namespace {

// Every privileged view shows what the other kind of completion says.
constexpr double kPrompt = 200;
constexpr double kPrivilegedTemplate = 130;

ViewLengths OfOneLength(double tokens, double scored) {
  return {tokens, tokens * tokens, scored};
}

void Add(const ViewLengths& view, ViewLengths* sum) {
  sum->tokens += view.tokens;
  sum->squares += view.squares;
  sum->scored += view.scored;
}

// Weights of the seven projections of all layers.
double LinearParameters(const ModelConfig& model) {
  double layer = 0;
  for (const Projection p : AllProjections()) {
    layer += static_cast<double>(ProjectionIn(model, p)) *
             static_cast<double>(ProjectionOut(model, p));
  }
  return layer * static_cast<double>(model.num_layers);
}

double LoraParameters(const Config& config, const ModelConfig& model) {
  std::vector<Projection> targets;
  for (const Projection p : AllProjections()) {
    if (std::ranges::count(config.lora.targets, ProjectionName(p)) > 0) {
      targets.push_back(p);
    }
  }
  return static_cast<double>(
      NumLoraParameters(model, config.lora.rank, targets));
}

}  // namespace

SampleLengths LongestSamples(const Config& config) {
  const auto y = static_cast<double>(config.rollout.max_new_tokens);
  const auto r = static_cast<double>(config.objective.max_reference_tokens);
  const double privileged = kPrompt + kPrivilegedTemplate;
  const bool append = config.objective.self_rollout == "append";
  return {
      {"none_rollout", OfOneLength(kPrompt + y, y)},
      {"self_rollout", OfOneLength((append ? kPrompt : privileged) + 2 * y, y)},
      {"cross_rollout", OfOneLength(privileged + r + y, y)},
      {"none_reference", OfOneLength(kPrompt + r, r)},
      {"self_reference", OfOneLength(privileged + 2 * r, r)},
      {"cross_reference", OfOneLength(privileged + y + r, r)}};
}

StepWork CountStepWork(const Config& config,
                       const ModelConfig& model,
                       const SampleLengths& lengths,
                       bool snapshot_is_base) {
  const bool append = config.objective.self_rollout == "append";
  std::set<std::string> students;
  std::set<std::pair<WeightSet, std::string>> teachers;
  const std::vector<Term> terms = ExpandTerms(config.objective);
  for (const ViewName view : StudentViews(terms)) {
    students.insert(ViewNameString(view));
  }
  for (const TeacherPass& pass : TeacherPasses(terms)) {
    const bool is_base =
        snapshot_is_base && pass.weights == WeightSet::kSnapshot;
    teachers.emplace(is_base ? WeightSet::kBase : pass.weights,
                     ViewNameString(pass.view));
  }
  ViewLengths live;
  ViewLengths teacher;
  ViewLengths teacher_base;
  for (const std::string& name : students) {
    ViewLengths view = lengths.at(name);
    if (append && name == "none_rollout" && students.contains("self_rollout")) {
      view.tokens = view.squares = 0;  // the beginning of self_rollout
    }
    Add(view, &live);
  }
  for (const auto& [weights, name] : teachers) {
    Add(lengths.at(name), &teacher);
    if (weights == WeightSet::kBase) Add(lengths.at(name), &teacher_base);
  }

  const auto batch = static_cast<double>(config.trainer.batch_size);
  const auto layers = static_cast<double>(model.num_layers);
  const auto hidden = static_cast<double>(model.hidden_size);
  const double bytes = config.model.precision == "float32" ? 4 : 2;
  const double linear = LinearParameters(model);
  const double lora = LoraParameters(config, model);
  const double head = hidden * static_cast<double>(model.vocab_size);
  // Causal: half of the square, for the scores and for the values.
  const double attention = 2 * layers * static_cast<double>(model.num_heads) *
                           static_cast<double>(model.head_dim);

  StepWork work;
  work.live_tokens = batch * live.tokens;
  work.teacher_tokens = batch * teacher.tokens;
  work.head_rows = batch * (live.scored + teacher.scored);
  // A forward is 1, a recomputation 1 more, the gradient by the inputs 1 (2.5
  // in attention); frozen weights have none of their own, an adapter has.
  const double passes = config.trainer.recompute ? 3 : 2;
  work.trainer_flops =
      batch * (live.tokens * (passes * 2 * linear + (passes + 1) * 2 * lora) +
               live.squares * attention * (passes + 1.5) +
               2 * head * (2 * live.scored + teacher.scored));
  const double adapted = teacher.tokens - teacher_base.tokens;
  work.teacher_flops =
      batch * (teacher.tokens * 2 * linear + adapted * 2 * lora +
               teacher.squares * attention);

  const auto workers = static_cast<double>(config.run.rollout_workers);
  const double share = std::ceil(batch / workers);
  const double side_by_side =
      std::min(share, static_cast<double>(config.rollout.slots));
  const double rounds = std::ceil(share / side_by_side);
  const double kv_token = 2 * layers * bytes *
                          static_cast<double>(model.num_kv_heads) *
                          static_cast<double>(model.head_dim);
  const double answer = lengths.at("none_rollout").scored;
  const double prompt = lengths.at("none_rollout").tokens - answer;
  work.decode_steps = rounds * answer;
  // Of each of the processes that share the layers; all compute the head.
  const auto split = static_cast<double>(config.rollout.tensor_parallel);
  work.decode_bytes = (bytes * linear + 4 * lora +
                       side_by_side * kv_token * (prompt + answer / 2)) /
                          split +
                      bytes * head;
  work.decode_flops = side_by_side * 2 * ((linear + lora) / split + head);
  work.prefill_flops =
      share *
      ((prompt * 2 * (linear + lora) + prompt * prompt * attention) / split +
       2 * head);

  work.payload_bytes = batch * teacher.scored * hidden * bytes;
  work.adapter_bytes = 4 * lora;
  const auto ranks = static_cast<double>(config.trainer.ranks);
  work.reduce_bytes = 2 * (ranks - 1) / ranks * 4 * lora;
  if (config.trainer.shard_base) {
    // A pass holds what fits into pack_tokens, of one micro-batch at most.
    const double micro_batches = std::ceil(
        batch / static_cast<double>(config.trainer.micro_batch_size) / ranks);
    const double packs =
        std::ceil(batch * live.tokens / ranks /
                  static_cast<double>(config.trainer.pack_tokens));
    work.gather_bytes = std::max(micro_batches, packs) * 2 * (ranks - 1) /
                        ranks * bytes * linear;
  }
  return work;
}

StepSeconds PredictStep(const Config& config,
                        const StepWork& work,
                        const HardwareRates& rates) {
  StepSeconds seconds;
  seconds.rollout =
      work.prefill_flops / rates.flops +
      work.decode_steps * std::max(work.decode_bytes / rates.memory_bytes,
                                   work.decode_flops / rates.flops);
  seconds.teacher = work.teacher_flops / rates.flops /
                    static_cast<double>(config.run.teacher_workers);
  const auto ranks = static_cast<double>(config.trainer.ranks);
  seconds.trainer = work.trainer_flops / rates.flops / ranks;
  seconds.network = (work.payload_bytes / ranks + work.adapter_bytes +
                     work.reduce_bytes + work.gather_bytes) /
                    rates.network_bytes;
  return seconds;
}

}  // namespace dapd
