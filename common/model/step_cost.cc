#include "common/model/step_cost.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "common/config/preset_terms.h"

namespace dapd {
namespace {

struct ViewShape {
  double tokens = 0;
  double scored = 0;
};

ViewShape ShapeOf(const std::string& view,
                  const SampleLengths& lengths,
                  bool append) {
  const double prompt = lengths.prompt;
  const double privileged = prompt + lengths.privileged_template;
  const double y = lengths.rollout;
  const double r = lengths.reference;
  if (view == "none_rollout") return {prompt + y, y};
  if (view == "self_rollout")
    return {(append ? prompt : privileged) + 2 * y, y};
  if (view == "cross_rollout") return {privileged + r + y, y};
  if (view == "none_reference") return {prompt + r, r};
  if (view == "self_reference") return {privileged + 2 * r, r};
  return {privileged + y + r, r};  // cross_reference
}

// Tokens, their squares summed over sequences (for attention), scored tokens.
struct Pass {
  double tokens = 0;
  double squares = 0;
  double scored = 0;

  void Add(const ViewShape& shape) {
    tokens += shape.tokens;
    squares += shape.tokens * shape.tokens;
    scored += shape.scored;
  }
};

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
  SampleLengths lengths;
  lengths.rollout = static_cast<double>(config.rollout.max_new_tokens);
  lengths.reference =
      static_cast<double>(config.objective.max_reference_tokens);
  return lengths;
}

StepWork CountStepWork(const Config& config,
                       const ModelConfig& model,
                       const SampleLengths& lengths,
                       bool snapshot_is_base) {
  const bool append = config.objective.self_rollout == "append";
  std::set<std::string> students;
  std::set<std::pair<std::string, std::string>> teachers;  // weights, view
  for (const TermConfig& term : ExpandTerms(config.objective)) {
    students.insert(term.student);
    teachers.emplace(snapshot_is_base ? "base" : term.teacher_weights,
                     term.teacher);
  }
  Pass live;
  Pass teacher;
  Pass teacher_base;
  for (const std::string& view : students) {
    const ViewShape shape = ShapeOf(view, lengths, append);
    const bool is_prefix =
        append && view == "none_rollout" && students.contains("self_rollout");
    live.Add(is_prefix ? ViewShape{0, shape.scored} : shape);
  }
  for (const auto& [weights, view] : teachers) {
    const ViewShape shape = ShapeOf(view, lengths, append);
    teacher.Add(shape);
    if (weights == "base") teacher_base.Add(shape);
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
  work.decode_steps = rounds * lengths.rollout;
  work.decode_bytes =
      bytes * (linear + head) + 4 * lora +
      side_by_side * kv_token * (lengths.prompt + lengths.rollout / 2);
  work.decode_flops = side_by_side * 2 * (linear + lora + head);
  work.prefill_flops =
      share * (lengths.prompt * 2 * (linear + lora) +
               lengths.prompt * lengths.prompt * attention + 2 * head);

  work.payload_bytes = batch * teacher.scored * hidden * bytes;
  work.adapter_bytes = 4 * lora;
  const auto ranks = static_cast<double>(config.trainer.ranks);
  work.reduce_bytes = 2 * (ranks - 1) / ranks * 4 * lora;
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
