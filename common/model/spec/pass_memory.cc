#include "common/model/spec/pass_memory.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/visible_gpus.h"
#include "common/gpus/gpu.h"
#include "common/model/spec/executor_support.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/number_bytes.h"
#include "common/model/spec/step_cost.h"

namespace dapd {
namespace {

// The sizes on a CPU if the configuration names none.
constexpr int64_t kHostActivationMib = 1024;
constexpr int64_t kHostAheadMib = 2048;
// The limit on a CPU: if the activations of a pack take more, few layers keep
// them, and chunks, which keep none, cost next to nothing. This is not the
// memory that the run may keep, because that may change when the run is
// continued, and chunks are part of its result.
constexpr int64_t kChunkedActivationBytes = int64_t{4} << 30;

// On a GPU, the launches of the kernels limit the speed of a chunk of fewer
// tokens.
constexpr int64_t kLeastDeviceChunk = 2048;
constexpr double kGpuLossBytes = 1.1e9;

// The longest packs and samples in tokens, with answers and references as long
// as they may be.
struct Longest {
  int64_t pack = 0;    // of rollouts or, if not trained, references
  int64_t either = 0;  // longest pack of rollouts or references
  int64_t sample = 0;  // longest sample's views, never split
};

Longest LongestOf(const Config& config) {
  int64_t rollout = 0;
  int64_t reference = 0;
  for (const auto& [name, view] : LiveViews(config, LongestSamples(config))) {
    (CompletionOf(name) == Completion::kRollout ? rollout : reference) +=
        static_cast<int64_t>(view.tokens);
  }
  const TrainerSection& trainer = config.trainer;
  const auto pack_of = [&trainer](int64_t sample) {
    return std::max(
        sample,
        std::min(trainer.micro_batch_size * sample, trainer.pack_tokens));
  };
  const int64_t sample = std::max(rollout, reference);
  return {.pack = pack_of(rollout > 0 ? rollout : reference),
          .either = pack_of(sample),
          .sample = sample};
}

// Returns NumKeptLayers (common/model/training_pass.h) of a LayerPass.
int64_t KeptLayers(const ModelConfig& model,
                   int64_t row_bytes,
                   int64_t tokens,
                   int64_t bytes) {
  return std::min(model.num_layers,
                  bytes / (std::max<int64_t>(tokens, 1) * row_bytes));
}

bool TrainsAhead(const TrainerSection& trainer) {
  return trainer.train_while_sampling && !trainer.shard_base;
}

// Returns the bytes that a step takes besides its passes once base and policy
// are loaded, including the gathered layers of a split base.
double StepBytes(const Config& config,
                 const ModelConfig& model,
                 const FurtherTeachers& teachers,
                 int64_t total) {
  const GpuStepMemory step = GpuStepMemoryOf(config, model, teachers);
  return step.adapters + step.scores + step.loss +
         GatheredBytes(config, model, RanksOfBase(config.trainer)) +
         kGpuHoles * static_cast<double>(total);
}

// Returns the bytes that a pass takes without any kept activations.
double PassBytes(const Config& config,
                 const ModelConfig& model,
                 int64_t tokens) {
  const double inputs = static_cast<double>(
      tokens * NumberBytes(config) * model.hidden_size * model.num_layers);
  return inputs +
         2 * LayerWorkspace(config, model, static_cast<double>(tokens));
}

TrainerLimits LimitsOfHost(const Config& config,
                           int64_t row_bytes,
                           const ModelConfig& model) {
  const TrainerSection& trainer = config.trainer;
  const auto mib = [](int64_t configured, int64_t otherwise) {
    return (configured < 0 ? otherwise : configured) << 20;
  };
  const Longest longest = LongestOf(config);
  TrainerLimits limits = {
      .pack_tokens = trainer.pack_tokens,
      .activation_bytes =
          mib(trainer.activation_memory_mib, kHostActivationMib),
      .ahead_bytes = mib(trainer.ahead_memory_mib, kHostAheadMib),
      .longest_pack = longest.pack,
      .splits_packs = !config.model.deterministic};
  const bool keeps = Supports(Executor::kLayerPass, model);
  if (!keeps) limits.activation_bytes = 0;
  limits.kept_layers =
      KeptLayers(model, row_bytes, longest.pack, limits.activation_bytes);
  if (keeps &&
      KeptLayers(model, row_bytes, longest.pack, kChunkedActivationBytes) <
          model.num_layers) {
    limits.chunk_tokens = trainer.chunk_tokens;
  }
  return limits;
}

// Returns the most tokens whose pass takes at most `bytes`.
int64_t TokensIn(const Config& config, const ModelConfig& model, double bytes) {
  return static_cast<int64_t>(bytes / PassBytes(config, model, 1));
}

// Chunks are part of the result, so they must not depend on memory with
// model.deterministic. A pass by LibTorch cannot begin with chunks.
bool MayChunk(const Config& config, const ModelConfig& model) {
  return config.trainer.chunk_tokens > 0 && !config.model.deterministic &&
         Supports(Executor::kLayerPass, model);
}

// The bytes of the activations of all layers, for the longest pack of answers,
// for the longest pack of either kind, and for all tokens that a pass may have.
struct Activations {
  double answers = 0;
  double either = 0;
  double pass = 0;
};

// Divides `left` bytes between activations and training ahead.
void Divide(const Config& config,
            const ModelConfig& model,
            double left,
            const Activations& all,
            TrainerLimits* limits) {
  const TrainerSection& trainer = config.trainer;
  double ahead = 0;
  if (TrainsAhead(trainer) && trainer.ahead_memory_mib >= 0) {
    ahead = static_cast<double>(trainer.ahead_memory_mib << 20);
    left = std::max(0.0, left - ahead);
  }
  const bool divides = TrainsAhead(trainer) && trainer.ahead_memory_mib < 0;
  // Some samples may be longer than expected.
  const double beyond = std::max(0.0, left - all.either);
  double activations = std::min(left - (divides ? beyond / 2 : 0.0), all.pass);
  if (trainer.activation_memory_mib >= 0) {
    activations = static_cast<double>(trainer.activation_memory_mib << 20);
  } else if (left < all.answers && MayChunk(config, model) && divides) {
    // Chunks keep no activations, but the chunks themselves are kept.
    activations = left / 2;
  }
  if (divides) ahead = std::max(0.0, left - activations);
  limits->activation_bytes = static_cast<int64_t>(activations);
  limits->ahead_bytes = static_cast<int64_t>(ahead);
}

absl::Status NoRoom(double needed, int64_t tokens, const DeviceMemory& gpu) {
  return ConfigError(absl::StrFormat(
      "the trainer needs %.1f GiB beside its base and adapter, for a step and "
      "passes of %d tokens; the GPU has %.1f GiB, of which %.1f are free. "
      "Lower "
      "trainer.pack_tokens, rollout.max_new_tokens, "
      "objective.max_reference_tokens or trainer.batch_size, or split the base "
      "(trainer.ranks with trainer.shard_base)",
      needed / kGiB,
      tokens,
      static_cast<double>(gpu.total) / kGiB,
      static_cast<double>(gpu.free) / kGiB));
}

}  // namespace

bool PlansForGpu(const Config& config) {
  return config.model.device == DeviceChoice::kCuda ||
         (config.model.device == DeviceChoice::kAuto && !VisibleGpus().empty());
}

GpuStepMemory GpuStepMemoryOf(const Config& config,
                              const ModelConfig& model,
                              const FurtherTeachers& teachers) {
  const TrainerSection& trainer = config.trainer;
  const double adapter = 4 * static_cast<double>(LoraParameters(config, model));
  // The gradient of the step and of a micro-batch, two moments, the pushed
  // adapter, the next snapshot, the moving average; between ranks also the sum
  // and its copy.
  double adapters = 7;
  if (trainer.ranks > 1) adapters += 2;
  if (config.rollout.max_staleness > 0) adapters += 1;
  const double scores =
      static_cast<double>(MostScoreBytes(config, model, teachers)) *
      static_cast<double>(trainer.batch_size) /
      static_cast<double>(trainer.ranks) * 3 *
      static_cast<double>(config.rollout.max_new_tokens +
                          config.objective.max_reference_tokens);
  return {.policy = 2 * adapter,
          .adapters = adapters * adapter,
          .scores = scores,
          .loss = kGpuLossBytes};
}

DeviceMemory ShareOf(DeviceMemory memory, int64_t processes) {
  if (processes <= 1) return memory;
  memory.total /= processes;
  memory.free = std::clamp<int64_t>(memory.total - memory.own, 0, memory.free);
  return memory;
}

int64_t LayerActivationBytes(const ModelConfig& model,
                             int64_t lora_rank,
                             int64_t number) {
  // LayerPass has the same tensors in every layer that it computes.
  const LayerRecipe recipe = LayerRecipeOf(model, /*layer=*/0);
  const AttentionRecipe& attention = recipe.attention;
  // The layer's input, the sum after attention, and attention's result.
  int64_t values = 2 * model.hidden_size + recipe[attention.o].in;
  for (const Projection kept : {attention.q,
                                attention.k,
                                attention.v,
                                recipe.mlp.gate,
                                recipe.mlp.up}) {
    values += recipe[kept].out;
  }
  const auto pairs = static_cast<int64_t>(recipe.projections.size());
  constexpr int64_t kFloatBytes = 4;
  return values * number + (pairs * lora_rank + attention.heads) * kFloatBytes;
}

int64_t MostPassTokens(const Config& config) {
  return std::max(config.trainer.pack_tokens, LongestOf(config).sample);
}

int64_t LeastPassTokens(const Config& config) {
  return config.model.deterministic ? MostPassTokens(config)
                                    : LongestOf(config).sample;
}

absl::StatusOr<TrainerLimits> PlanTrainerLimits(
    const Config& config,
    const ModelConfig& model,
    const std::optional<DeviceMemory>& gpu,
    const FurtherTeachers& teachers) {
  const TrainerSection& trainer = config.trainer;
  const int64_t row_bytes =
      LayerActivationBytes(model, config.lora.rank, NumberBytes(config));
  if (!gpu.has_value()) return LimitsOfHost(config, row_bytes, model);

  const Longest longest = LongestOf(config);
  const int64_t least = LeastPassTokens(config);
  const double step = StepBytes(config, model, teachers, gpu->total);
  const double for_passes = static_cast<double>(gpu->free) - step;
  const double needed = PassBytes(config, model, least);
  if (for_passes < needed) return NoRoom(step + needed, least, *gpu);

  TrainerLimits limits;
  limits.splits_packs = !config.model.deterministic;
  const int64_t pass = std::clamp(
      TokensIn(config, model, for_passes), least, MostPassTokens(config));
  limits.pack_tokens = std::min(pass, trainer.pack_tokens);
  limits.longest_pack = std::min(longest.pack, pass);
  const bool keeps = Supports(Executor::kLayerPass, model);
  const double layers_bytes =
      keeps ? static_cast<double>(row_bytes * model.num_layers) : 0.0;
  Divide(config,
         model,
         std::max(0.0, for_passes - PassBytes(config, model, pass)),
         {.answers = layers_bytes * static_cast<double>(limits.longest_pack),
          .either = layers_bytes * static_cast<double>(longest.either),
          .pass = layers_bytes * static_cast<double>(pass)},
         &limits);
  if (!keeps) limits.activation_bytes = 0;
  limits.kept_layers = KeptLayers(
      model, row_bytes, limits.longest_pack, limits.activation_bytes);
  if (limits.kept_layers < model.num_layers && MayChunk(config, model)) {
    limits.chunk_tokens = std::max(trainer.chunk_tokens, kLeastDeviceChunk);
  }
  return limits;
}

DeviceMemory EmptyGpu(const Config& config,
                      const ModelConfig& model,
                      int64_t total,
                      const FurtherTeachers& teachers) {
  const double own = ShardBytes(config, model, RanksOfBase(config.trainer)) +
                     HeadBytes(config, teachers) +
                     GpuStepMemoryOf(config, model).policy + kGpuContextBytes;
  const auto taken = static_cast<int64_t>(own);
  return ShareOf({.total = total,
                  .free = std::max<int64_t>(0, total - taken),
                  .own = taken},
                 config.run.gpu_processes);
}

std::string Describe(const TrainerLimits& limits, const ModelConfig& model) {
  const std::string answers =
      limits.chunk_tokens == 0
          ? "answers whole"
          : absl::StrFormat("answers in chunks of %d", limits.chunk_tokens);
  return absl::StrFormat(
      "packs of %d tokens, %s, %.2f GiB of activations (%d of %d layers of the "
      "longest answers' pack, %d tokens), %.2f GiB ahead",
      limits.pack_tokens,
      answers,
      static_cast<double>(limits.activation_bytes) / kGiB,
      limits.kept_layers,
      model.num_layers,
      limits.longest_pack,
      static_cast<double>(limits.ahead_bytes) / kGiB);
}

}  // namespace dapd
