#include "common/model/spec/memory_plan.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "common/config/preset_terms.h"
#include "common/model/spec/decoding_memory.h"
#include "common/model/spec/decoding_shape.h"
#include "common/model/spec/executor_support.h"
#include "common/model/spec/number_bytes.h"
#include "common/model/spec/pass_memory.h"
#include "common/model/spec/scoring_memory.h"
#include "common/model/spec/step_cost.h"

namespace dapd {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// A program with its libraries on a CPU.
constexpr double kProgramBytes = 400e6;
// The numbers of tensors as wide as a layer's input, and as its MLP, that are
// in use at once in a layer of LayerPass.
constexpr double kHiddenTensors = 12;
constexpr double kIntermediateTensors = 4;
// The corresponding numbers if LibTorch computes the layer and its gradient:
// float32 tensors as wide as its input around norms and sums; tensors as wide
// as a projection's input and output, with the update of an adapter; tensors as
// wide as the MLP around its product; and numbers for each pair of a query and
// a key that its block of queries can see, half of a view's keys on average
// (reference/attention.cc).
constexpr double kReferenceHidden = 24;
constexpr double kReferenceIn = 2;
constexpr double kReferenceOut = 5;
constexpr double kReferenceMlp = 6;
constexpr double kReferencePairs = 6;
constexpr double kReferenceBlock = 256;
// The loss's buffers on a CPU at any length (common/objective/head_loss.h).
constexpr double kHeadLossBytes = 400e6;

double ProgramBytes(const Config& config) {
  return PlansForGpu(config) ? kGpuContextBytes : kProgramBytes;
}

// Sizes that all roles use.
struct Sizes {
  double number = 0;     // bytes of one of the model's numbers
  double adapter = 0;    // bytes
  double rollout = 0;    // tokens of the longest answer
  double reference = 0;  // tokens of the longest reference
  double hidden = 0;
};

Sizes SizesOf(const Config& config,
              const ModelConfig& model,
              int64_t lora_parameters) {
  return {
      .number = static_cast<double>(NumberBytes(config)),
      .adapter = 4 * static_cast<double>(lora_parameters),
      .rollout = static_cast<double>(config.rollout.max_new_tokens),
      .reference = static_cast<double>(config.objective.max_reference_tokens),
      .hidden = static_cast<double>(model.hidden_size)};
}

// Returns the keys and values of all slots at their longest, for one rank of a
// worker.
double SlotsMemory(const Config& config, const ModelConfig& model) {
  int64_t slots = config.rollout.slots;
  int64_t tokens = kPromptTokens + config.rollout.max_new_tokens;
  int64_t token_bytes = KvTokenBytes(config, model);
  if (PlansForGpu(config)) {
    slots = std::min(slots, kGpuDecodeSlots);
    tokens = TokensOfPages(tokens);
    if (Supports(Executor::kCudaDecoder, model)) {
      token_bytes = AnswerTokenBytes(config, model);
    }
  }
  return static_cast<double>(slots * tokens) *
         static_cast<double>(token_bytes) /
         static_cast<double>(config.rollout.tensor_parallel);
}

// Lists the memory that decoding takes on a GPU beside the slots. A pass that
// finds no memory for its prompts takes fewer, and without memory for merged
// projections LibTorch's operations decode; between ranks either failure ends
// the run.
std::vector<MemoryItem> DecodingOnGpu(const Config& config,
                                      const ModelConfig& model) {
  const DecodingMemory decoding =
      DecodingMemoryOf(config, model, kPromptTokens);
  const bool merges = config.model.precision == Precision::kFloat32;
  const bool is_alone = config.rollout.tensor_parallel == 1;
  const auto if_alone = [is_alone](double least) {
    return is_alone ? std::optional(least) : std::nullopt;
  };
  std::vector<MemoryItem> items = {
      {merges ? "projections with the adapter" : "adapter in the projections",
       decoding.packed,
       if_alone(merges ? 0.0 : decoding.packed)},
      {"decoder", decoding.tables + decoding.workspace},
      {"prompts or the next adapter",
       decoding.AtMost(),
       if_alone(decoding.AtLeast())},
      {"cuBLAS and graphs",
       decoding.outside,
       if_alone(decoding.least_outside)}};
  if (!is_alone) {
    items.push_back({"sums over the ranks", PartsOfRanks(config, model)});
  }
  return items;
}

// Lists the memory of decoding by LibTorch beside keys and values of `slots`
// bytes: the caches have room for an eighth more, or for a block of tokens
// (common/generation/aten/aten_backend.h).
std::vector<MemoryItem> DecodingByLibTorch(const Config& config,
                                           const ModelConfig& model,
                                           double slots) {
  constexpr double kCacheBlock = 64;
  constexpr double kLogits = 3;  // on the device, in float32, on the host
  const auto rows = static_cast<double>(config.rollout.slots);
  return {
      {"room of the caches",
       slots / 8 + rows * kCacheBlock *
                       static_cast<double>(KvTokenBytes(config, model))},
      {"a layer of a prompt",
       LayerWorkspace(config, model, static_cast<double>(kPromptTokens))},
      {"logits",
       kLogits * sizeof(float) * rows * static_cast<double>(model.vocab_size)}};
}

RoleMemory RolloutMemory(const Config& config,
                         const ModelConfig& model,
                         const Sizes& sizes) {
  const double slots = SlotsMemory(config, model);
  const double kv_limit =
      static_cast<double>(config.rollout.kv_memory_mib) * kMiB;
  RoleMemory memory{
      {{"program", ProgramBytes(config)},
       {"base", ShardBytes(config, model, config.rollout.tensor_parallel)},
       {"adapter", sizes.adapter},
       {"key-value caches",
        kv_limit > 0 ? std::min(slots, kv_limit) : slots,
        /*least=*/0.0}}};
  const bool on_gpu = PlansForGpu(config);
  if (!Supports(on_gpu ? Executor::kCudaDecoder : Executor::kCpuDecoder,
                model)) {
    std::ranges::move(DecodingByLibTorch(config, model, slots),
                      std::back_inserter(memory.items));
  } else if (on_gpu) {
    std::ranges::move(DecodingOnGpu(config, model),
                      std::back_inserter(memory.items));
  }
  return memory;
}

RoleMemory TeacherMemory(const Config& config, const ModelConfig& model) {
  const double prefix_caches =
      static_cast<double>(config.teacher.prefix_memory_mib) * kMiB;
  RoleMemory memory{{{"program", ProgramBytes(config)},
                     {"base", BaseBytesOfRank(config, model, /*ranks=*/1)},
                     {"prefix caches", prefix_caches}}};
  std::ranges::move(ScoringItems(config, model, prefix_caches),
                    std::back_inserter(memory.items));
  return memory;
}

// Adds adapters of the shape that `config` asks for, one for each name, and
// their place in the packed projections.
void AddAdapters(const std::vector<std::string>& names,
                 const Config& config,
                 const ModelConfig& model,
                 RoleMemory* memory) {
  const double bytes = 4 * static_cast<double>(LoraParameters(config, model));
  for (const std::string& name : names) memory->items.push_back({name, bytes});
  if (PlansForGpu(config) && !names.empty() &&
      Supports(Executor::kLayerPass, model)) {
    memory->items.push_back(
        {"adapter in the projections", AdapterColumnBytes(config, model)});
  }
}

RoleMemory OwnTeacherMemory(const Config& config, const ModelConfig& model) {
  RoleMemory memory = TeacherMemory(config, model);
  std::vector<std::string> names;
  for (const WeightSet set : TeacherSets(config)) {
    names.emplace_back(NameOf(set));
  }
  AddAdapters(names, config, model, &memory);
  return memory;
}

// Lists the memory that a step takes besides its passes.
std::vector<MemoryItem> StepItems(const Config& config,
                                  const ModelConfig& model,
                                  const FurtherTeachers& teachers,
                                  const Sizes& sizes) {
  if (PlansForGpu(config)) {
    const GpuStepMemory step = GpuStepMemoryOf(config, model, teachers);
    return {{"adapter and snapshot", step.policy},
            {"gradients, moments and copies of the adapter", step.adapters},
            {"loss", step.loss},
            {"scores of a step", step.scores}};
  }
  std::vector<MemoryItem> items = {
      {"adapter, two gradients, two moments", 5 * sizes.adapter},
      {"snapshot", sizes.adapter},
      {"loss", kHeadLossBytes},
      {"scores of a step",
       static_cast<double>(MostScoreBytes(config, model, teachers)) *
           static_cast<double>(config.trainer.batch_size) * 3 *
           (sizes.rollout + sizes.reference)}};
  if (TeacherSets(config).contains(WeightSet::kEma)) {
    items.push_back({"moving average", sizes.adapter});
  }
  if (config.rollout.max_staleness > 0) {
    items.push_back({"adapter of the step before", sizes.adapter});
  }
  return items;
}

RoleMemory TrainerMemory(const Config& config,
                         const ModelConfig& model,
                         const FurtherTeachers& teachers,
                         const Sizes& sizes) {
  const TrainerSection& trainer = config.trainer;
  const auto pass = static_cast<double>(MostPassTokens(config));
  const auto least_pass = static_cast<double>(LeastPassTokens(config));
  // The CPU's sizes, unless the configuration names others. A GPU's memory is
  // filled instead, and packs are shorter if it is small (pass_memory.h).
  const TrainerLimits limits =
      PlanTrainerLimits(config, model, /*gpu=*/std::nullopt).value();
  const std::optional<double> kept =
      trainer.activation_memory_mib < 0 ? std::optional(0.0) : std::nullopt;
  const double input = sizes.number * sizes.hidden *
                       static_cast<double>(model.num_layers);  // of a token
  RoleMemory memory{
      {{"program", ProgramBytes(config)},
       {"base", BaseBytesOfRank(config, model, RanksOfBase(trainer))},
       {"inputs of all layers", pass * input, least_pass * input},
       {"kept activations", static_cast<double>(limits.activation_bytes), kept},
       {"a layer",
        2 * LayerWorkspace(config, model, pass),
        2 * LayerWorkspace(config, model, least_pass)}},
      PlansForGpu(config) ? kGpuHoles : 0.0};
  if (!teachers.empty()) {
    memory.items.push_back(
        {"heads of further teachers", HeadBytes(config, teachers)});
  }
  std::ranges::move(StepItems(config, model, teachers, sizes),
                    std::back_inserter(memory.items));
  if (trainer.train_while_sampling && !trainer.shard_base) {
    memory.items.push_back({"trained ahead",
                            static_cast<double>(limits.ahead_bytes),
                            /*least=*/0.0});
  }
  return memory;
}

// Returns the tokens of the longest view of a sample.
double LongestView(const Config& config) {
  double longest = 0;
  for (const auto& [name, view] : LongestSamples(config)) {
    longest = std::max(longest, view.tokens);
  }
  return longest;
}

// Returns the numbers that a layer computed by LibTorch takes for a token of a
// view of `longest_view` tokens.
double ReferenceRowNumbers(const LayerRecipe& recipe, double longest_view) {
  double numbers = kReferenceMlp * static_cast<double>(recipe.mlp.width) +
                   kReferencePairs * (longest_view / 2 + kReferenceBlock) *
                       static_cast<double>(recipe.attention.heads);
  numbers +=
      kReferenceHidden * static_cast<double>(recipe[recipe.attention.q].in);
  for (const ProjectionRecipe& projection : recipe.projections) {
    numbers += kReferenceIn * static_cast<double>(projection.in) +
               kReferenceOut * static_cast<double>(projection.out);
  }
  return numbers;
}

}  // namespace

std::set<WeightSet> TeacherSets(const Config& config) {
  std::set<WeightSet> sets;
  for (const TeacherPass& pass : TeacherPasses(ExpandTerms(config.objective))) {
    if (pass.weights != WeightSet::kBase) sets.insert(pass.weights);
  }
  return sets;
}

double LayerWorkspace(const Config& config,
                      const ModelConfig& model,
                      double tokens) {
  if (!Supports(Executor::kLayerPass, model)) {
    const double longest_view = LongestView(config);
    double largest = 0;
    for (int64_t layer = 0; layer < model.num_layers; ++layer) {
      largest = std::max(
          largest,
          ReferenceRowNumbers(LayerRecipeOf(model, layer), longest_view));
    }
    return tokens * largest * sizeof(float);
  }
  return tokens * static_cast<double>(NumberBytes(config)) *
         (kHiddenTensors * static_cast<double>(model.hidden_size) +
          kIntermediateTensors * static_cast<double>(model.intermediate_size));
}

double ProjectedParameters(const ModelConfig& model) {
  double parameters = 0;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    parameters +=
        static_cast<double>(LayerRecipeOf(model, layer).NumProjected());
  }
  return parameters;
}

int64_t LoraParameters(const Config& config, const ModelConfig& model) {
  return NumLoraParameters(model, config.lora.rank, config.lora.targets);
}

double RoleMemory::Total() const {
  double total = 0;
  for (const MemoryItem& item : items) total += item.bytes;
  return total;
}

double RoleMemory::Least() const {
  double least = 0;
  for (const MemoryItem& item : items) {
    least += item.least.value_or(item.bytes);
  }
  return least;
}

int64_t RanksOfBase(const TrainerSection& trainer) {
  return trainer.shard_base ? trainer.ranks : 1;
}

double PartsOfRanks(const Config& config, const ModelConfig& model) {
  const auto ranks = static_cast<double>(config.rollout.tensor_parallel);
  if (ranks == 1) return 0;
  const auto rows = static_cast<double>(GpuDecodeRows(config.rollout.slots));
  const auto tokens =
      static_cast<double>(LongestPrefill(config, kPromptTokens));
  const auto number = static_cast<double>(NumberBytes(config));
  return static_cast<double>(model.hidden_size) *
         (ranks * rows * 4 + tokens * (2 * 4 + 2 * number));
}

// A rank's share of the layers, and everything else whole.
double ShardBytes(const Config& config,
                  const ModelConfig& model,
                  int64_t ranks) {
  const double split = ProjectedParameters(model);
  const double rest = static_cast<double>(model.NumParameters()) - split;
  return static_cast<double>(NumberBytes(config)) *
         (rest + split / static_cast<double>(ranks));
}

double GatheredBytes(const Config& config,
                     const ModelConfig& model,
                     int64_t ranks) {
  if (ranks <= 1) return 0;
  double layers = 0;  // the largest two side by side, and the copy
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const LayerRecipe recipe = LayerRecipeOf(model, i);
    int64_t copy = 0;  // of the largest projection split by inputs
    for (const ProjectionRecipe& projection : recipe.projections) {
      if (projection.split == SplitBy::kInputs) {
        copy = std::max(copy, projection.in * projection.out);
      }
    }
    layers =
        std::max(layers, static_cast<double>(2 * recipe.NumProjected() + copy));
  }
  return static_cast<double>(NumberBytes(config)) * layers;
}

double BaseBytesOfRank(const Config& config,
                       const ModelConfig& model,
                       int64_t ranks) {
  return ShardBytes(config, model, ranks) + GatheredBytes(config, model, ranks);
}

MemoryPlan PlanMemory(const Config& config,
                      const ModelConfig& model,
                      const FurtherTeachers& teachers) {
  MemoryPlan plan;
  plan.lora_parameters = LoraParameters(config, model);
  const Sizes sizes = SizesOf(config, model, plan.lora_parameters);
  plan.rollout = RolloutMemory(config, model, sizes);
  plan.teacher = OwnTeacherMemory(config, model);
  plan.trainer = TrainerMemory(config, model, teachers, sizes);
  for (const FurtherTeacher& teacher : teachers) {
    plan.teachers[teacher.name()] = PlanTeacherMemory(config, teacher);
  }
  return plan;
}

RoleMemory PlanTeacherMemory(const Config& config,
                             const FurtherTeacher& teacher) {
  RoleMemory memory = TeacherMemory(config, teacher.model);
  if (!teacher.lora.has_value()) return memory;
  Config own = config;
  own.lora.rank = teacher.lora->rank;
  own.lora.targets = TargetsOf(*teacher.lora, teacher.model);
  AddAdapters({"adapter"}, own, teacher.model, &memory);
  return memory;
}

}  // namespace dapd
