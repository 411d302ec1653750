#include "common/model/spec/step_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/config/preset_terms.h"
#include "common/config/prompts.h"
#include "common/config/step_kind.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/number_bytes.h"

namespace dapd {
namespace {

// Every privileged view shows the other kind of completion.
constexpr double kPrompt = 200;
constexpr double kPrivilegedTemplate = 130;

ViewLengths OfOneLength(double tokens, double scored) {
  return {tokens, tokens * tokens, scored};
}

void Add(const ViewLengths& view, ViewLengths* sum, double share = 1) {
  sum->tokens += share * view.tokens;
  sum->squares += share * view.squares;
  sum->scored += share * view.scored;
}

// The numbers of a model in the formulas of docs/scale.md.
struct ModelNumbers {
  double layers = 0;
  double hidden = 0;
  double bytes = 0;      // of a number
  double linear = 0;     // parameters of the layers' projections
  double lora = 0;       // parameters of the adapter
  double head = 0;       // parameters of the head
  double attention = 0;  // operations per squared token
  double kv_token = 0;   // bytes of a token's keys and values
};

ModelNumbers NumbersOf(const Config& config, const ModelConfig& model) {
  const auto layers = static_cast<double>(model.num_layers);
  ModelNumbers numbers;
  numbers.layers = layers;
  numbers.hidden = static_cast<double>(model.hidden_size);
  numbers.bytes = static_cast<double>(NumberBytes(config));
  numbers.linear = ProjectedParameters(model);
  numbers.lora = static_cast<double>(LoraParameters(config, model));
  numbers.head = numbers.hidden * static_cast<double>(model.vocab_size);
  // Causal: half of the square, once for the scores and once for the values.
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const AttentionRecipe attention = LayerRecipeOf(model, layer).attention;
    numbers.attention +=
        2 * static_cast<double>(attention.heads * attention.head_dim);
  }
  numbers.kv_token = static_cast<double>(KvTokenBytes(config, model));
  return numbers;
}

// The views of one sample, added up by reader.
struct ViewSums {
  ViewLengths live;
  ViewLengths teacher;
  ViewLengths teacher_base;  // part of `teacher` without an adapter
  std::map<std::string, ViewLengths> further;  // by further teacher
};

ViewSums SumViews(const Config& config,
                  const SampleLengths& lengths,
                  bool snapshot_is_base,
                  const FurtherTeachers& further) {
  ViewSums sums;
  const double share = 1.0 / static_cast<double>(further.size() + 1);
  std::set<std::pair<WeightSet, std::string>> teachers;
  for (const TeacherPass& pass : TeacherPasses(ExpandTerms(config.objective))) {
    const std::string name = ViewNameString(pass.view);
    if (pass.teacher == kRowTeacher) {
      Add(lengths.at(name), &sums.teacher, share);
      Add(lengths.at(name), &sums.teacher_base, share);
      for (const FurtherTeacher& teacher : further) {
        Add(lengths.at(name), &sums.further[teacher.name()], share);
      }
    } else if (!pass.teacher.empty()) {
      Add(lengths.at(name), &sums.further[pass.teacher]);
    } else {
      const bool is_base =
          snapshot_is_base && pass.weights == WeightSet::kSnapshot;
      teachers.emplace(is_base ? WeightSet::kBase : pass.weights, name);
    }
  }
  for (const auto& [name, view] : LiveViews(config, lengths)) {
    Add(view, &sums.live);
  }
  for (const auto& [weights, name] : teachers) {
    Add(lengths.at(name), &sums.teacher);
    if (weights == WeightSet::kBase) Add(lengths.at(name), &sums.teacher_base);
  }
  return sums;
}

// Returns the lengths as a mean step reads them: where steps take turns, a view
// is read in a share of them.
SampleLengths MeanOverSteps(const Config& config, SampleLengths lengths) {
  for (auto& [name, view] : lengths) {
    const auto known = ParseViewName(name);
    if (!known.ok()) continue;
    const double share = ShareOfSteps(config, CompletionOf(*known));
    view.tokens *= share;
    view.squares *= share;
    view.scored *= share;
  }
  return lengths;
}

void CountScoringAndTraining(const Config& config,
                             const ModelNumbers& model,
                             const ViewSums& views,
                             StepWork* work) {
  const auto batch = static_cast<double>(config.trainer.batch_size);
  const ViewLengths& live = views.live;
  const ViewLengths& teacher = views.teacher;
  work->live_tokens = batch * live.tokens;
  work->teacher_tokens = batch * teacher.tokens;
  work->head_rows = batch * (live.scored + teacher.scored);
  // The forward pass counts 1, its recomputation 1, and the gradient by the
  // inputs 1 (2.5 in attention); only the adapter has a gradient of its own,
  // frozen weights have none.
  constexpr double kPasses = 3;
  work->trainer_flops =
      batch * (live.tokens * (kPasses * 2 * model.linear +
                              (kPasses + 1) * 2 * model.lora) +
               live.squares * model.attention * (kPasses + 1.5) +
               2 * model.head * (2 * live.scored + teacher.scored));
  const double adapted = teacher.tokens - views.teacher_base.tokens;
  work->teacher_flops =
      batch * (teacher.tokens * 2 * model.linear + adapted * 2 * model.lora +
               teacher.squares * model.attention);
}

// Adds the work of further teachers, with their own sizes.
void CountFurther(const Config& config,
                  const ViewSums& views,
                  const FurtherTeachers& teachers,
                  StepWork* work) {
  const auto batch = static_cast<double>(config.trainer.batch_size);
  for (const FurtherTeacher& teacher : teachers) {
    const auto found = views.further.find(teacher.name());
    if (found == views.further.end()) continue;
    const ViewLengths& view = found->second;
    const ModelNumbers model = NumbersOf(config, teacher.model);
    work->teacher_tokens += batch * view.tokens;
    work->head_rows += batch * view.scored;
    work->trainer_flops += batch * 2 * model.head * view.scored;
    const auto lora = static_cast<double>(teacher.NumAdapterParameters());
    const double flops = batch * (view.tokens * 2 * (model.linear + lora) +
                                  view.squares * model.attention);
    work->further_flops += flops;
    work->further_flops_of_worker =
        std::max(work->further_flops_of_worker,
                 flops / static_cast<double>(teacher.settings.workers));
    work->payload_bytes +=
        batch * view.scored *
        static_cast<double>(ScoreBytes(config, teacher.model));
  }
}

// Returns the answers to each sample; a dual sample is hardly ever sampled
// again.
double AnswersOfSample(const RolloutSection& rollout) {
  if (rollout.source == ReferenceSource::kDual) return 2;
  return rollout.source == ReferenceSource::kVerified ? 5 : 1;
}

void CountDecoding(const Config& config,
                   const ModelNumbers& model,
                   const ViewLengths& none_rollout,
                   StepWork* work) {
  const double answers = static_cast<double>(config.trainer.batch_size) *
                         AnswersOfSample(config.rollout);
  const auto workers = static_cast<double>(config.run.rollout_workers);
  const double share = std::ceil(answers / workers);
  const double side_by_side =
      std::min(share, static_cast<double>(config.rollout.slots));
  const double rounds = std::ceil(share / side_by_side);
  const double answer = none_rollout.scored;
  const double prompt = none_rollout.tokens - answer;
  work->decode_steps = rounds * answer;
  // The share of each process that shares the layers; every process computes
  // the whole head.
  const auto split = static_cast<double>(config.rollout.tensor_parallel);
  work->decode_bytes = (model.bytes * model.linear + 4 * model.lora +
                        side_by_side * model.kv_token * (prompt + answer / 2)) /
                           split +
                       model.bytes * model.head;
  work->decode_flops =
      side_by_side * 2 * ((model.linear + model.lora) / split + model.head);
  // One sum each after the projections O and down of every layer.
  work->decode_sums = split > 1 ? 2 * model.layers : 0;
  work->prefill_flops = share * ((prompt * 2 * (model.linear + model.lora) +
                                  prompt * prompt * model.attention) /
                                     split +
                                 2 * model.head);
}

void CountTraffic(const Config& config,
                  const ModelNumbers& model,
                  int64_t score_bytes,
                  const ViewSums& views,
                  StepWork* work) {
  const auto batch = static_cast<double>(config.trainer.batch_size);
  const auto ranks = static_cast<double>(config.trainer.ranks);
  work->payload_bytes =
      batch * views.teacher.scored * static_cast<double>(score_bytes);
  work->adapter_bytes = 4 * model.lora;
  work->reduce_bytes = 2 * (ranks - 1) / ranks * 4 * model.lora;
  if (!config.trainer.shard_base) return;
  // A pass holds as much as fits into pack_tokens, from one micro-batch at
  // most.
  const double micro_batches = std::ceil(
      batch / static_cast<double>(config.trainer.micro_batch_size) / ranks);
  const double packs =
      std::ceil(batch * views.live.tokens / ranks /
                static_cast<double>(config.trainer.pack_tokens));
  work->gather_bytes = std::max(micro_batches, packs) * 2 * (ranks - 1) /
                       ranks * model.bytes * model.linear;
}

}  // namespace

HardwareRates AssumedRates(const Config& config) {
  if (config.model.device == DeviceChoice::kCpu) {
    return {.flops = 0.1e12, .memory_bytes = 10e9, .network_bytes = 1e9};
  }
  return {.flops = 400e12, .memory_bytes = 2.5e12, .network_bytes = 10e9};
}

SampleLengths LongestSamples(const Config& config) {
  const auto y = static_cast<double>(config.rollout.max_new_tokens);
  const auto r = static_cast<double>(config.objective.max_reference_tokens);
  const double privileged = kPrompt + kPrivilegedTemplate;
  const bool append = config.objective.self_rollout == SelfRollout::kAppend;
  SampleLengths lengths = {
      {"none_rollout", OfOneLength(kPrompt + y, y)},
      {"self_rollout", OfOneLength((append ? kPrompt : privileged) + 2 * y, y)},
      {"cross_rollout", OfOneLength(privileged + r + y, y)},
      {"none_reference", OfOneLength(kPrompt + r, r)},
      {"self_reference", OfOneLength(privileged + 2 * r, r)},
      {"cross_reference", OfOneLength(privileged + y + r, r)}};
  for (const ViewName view : ViewsRead(ExpandTerms(config.objective))) {
    if (IsAlwaysBuilt(view)) continue;
    const double problem = view == ViewName::kProbeRollout ? 0 : kPrompt;
    double shown = r;
    if (view == ViewName::kSiblingRollout) {
      // If the self-teacher is shown nothing in training, the view serves
      // held-out problems, which show a solution.
      shown = y * std::max(1.0, static_cast<double>(MostAnswersTold(config))) +
              static_cast<double>(MostFeedbackTold(config));
    }
    lengths[ViewNameString(view)] =
        OfOneLength(problem + kPrivilegedTemplate + shown + y, y);
  }
  return lengths;
}

std::map<ViewName, ViewLengths> LiveViews(const Config& config,
                                          const SampleLengths& lengths) {
  std::map<ViewName, ViewLengths> views;
  for (const ViewName view : StudentViews(ExpandTerms(config.objective))) {
    views[view] = lengths.at(ViewNameString(view));
  }
  if (config.objective.self_rollout == SelfRollout::kAppend &&
      views.contains(ViewName::kSelfRollout)) {
    const auto beginning = views.find(ViewName::kNoneRollout);
    if (beginning != views.end()) {
      beginning->second.tokens = beginning->second.squares = 0;
    }
  }
  return views;
}

StepWork CountStepWork(const Config& config,
                       const ModelConfig& model,
                       const SampleLengths& lengths,
                       bool snapshot_is_base,
                       const FurtherTeachers& teachers) {
  const ModelNumbers numbers = NumbersOf(config, model);
  const ViewSums views = SumViews(
      config, MeanOverSteps(config, lengths), snapshot_is_base, teachers);
  StepWork work;
  CountScoringAndTraining(config, numbers, views, &work);
  if (StepsNeedAnswers(config)) {
    CountDecoding(config, numbers, lengths.at("none_rollout"), &work);
    const double share = ShareOfSteps(config, Completion::kRollout);
    work.prefill_flops *= share;
    work.decode_steps *= share;
  }
  CountTraffic(config, numbers, ScoreBytes(config, model), views, &work);
  CountFurther(config, views, teachers, &work);
  return work;
}

StepSeconds PredictStep(const Config& config,
                        const StepWork& work,
                        const HardwareRates& rates) {
  StepSeconds seconds;
  seconds.rollout =
      work.prefill_flops / rates.flops +
      work.decode_steps * (std::max(work.decode_bytes / rates.memory_bytes,
                                    work.decode_flops / rates.flops) +
                           work.decode_sums * rates.sum_seconds);
  seconds.teacher =
      std::max(work.teacher_flops / rates.flops /
                   static_cast<double>(config.run.teacher_workers),
               work.further_flops_of_worker / rates.flops);
  const auto ranks = static_cast<double>(config.trainer.ranks);
  seconds.trainer = work.trainer_flops / rates.flops / ranks;
  seconds.network = (work.payload_bytes / ranks + work.adapter_bytes +
                     work.reduce_bytes + work.gather_bytes) /
                    rates.network_bytes;
  return seconds;
}

}  // namespace dapd
