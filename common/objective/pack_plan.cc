#include "common/objective/pack_plan.h"

#include <algorithm>
#include <utility>

#include "common/model/spec/step_cost.h"
#include "common/objective/view_pass.h"

namespace dapd {
namespace {

// Where the activations of a pack take more, few layers keep them, and chunks,
// which keep none, cost next to nothing. Not what the run may really keep: that
// may change where it goes on, and chunks are part of its result.
constexpr int64_t kChunkedActivationBytes = int64_t{4} << 30;

// The longest pack of rollouts that the configuration allows.
int64_t LongestRolloutPack(const Config& config) {
  const SampleLengths lengths = LongestSamples(config);
  const double tokens =
      static_cast<double>(config.trainer.micro_batch_size) *
      (lengths.at("none_rollout").tokens + lengths.at("self_rollout").tokens);
  return static_cast<int64_t>(
      std::min(tokens, static_cast<double>(config.trainer.pack_tokens)));
}

}  // namespace

PassLimits MakePassLimits(const Config& config, const ModelWeights& weights) {
  const TrainerSection& trainer = config.trainer;
  PassLimits limits;
  limits.pack_tokens = trainer.pack_tokens;
  limits.activation_bytes = trainer.activation_memory_mib << 20;
  const int64_t kept = NumKeptLayers(weights.config,
                                     config.lora.rank,
                                     weights.dtype(),
                                     LongestRolloutPack(config),
                                     kChunkedActivationBytes);
  // Passes through a base that ranks hold together are ones they make together.
  if (weights.source == nullptr && kept < weights.config.num_layers) {
    limits.chunk_tokens = trainer.chunk_tokens;
  }
  return limits;
}

std::vector<const View*> ViewsOf(std::span<const PackPart> pack,
                                 std::span<const Views* const> samples) {
  std::vector<const View*> views;
  for (const PackPart& part : pack) {
    const auto picked = Pick(*samples[part.sample], part.students);
    views.insert(views.end(), picked.begin(), picked.end());
  }
  return views;
}

std::vector<ViewName> NamesOf(std::span<const PackPart> pack) {
  std::vector<ViewName> names;
  for (const PackPart& part : pack) {
    names.insert(names.end(), part.students.begin(), part.students.end());
  }
  return names;
}

namespace {

// Whether any term has a token of `student` to score.
bool IsScored(ViewName student,
              const std::vector<Term>& terms,
              const Views& views) {
  return views[static_cast<size_t>(student)].scored_count > 0 &&
         std::ranges::any_of(terms, [&](const Term& term) {
           return term.student == student && !LacksTarget(term, views);
         });
}

}  // namespace

std::vector<Pack> PlanPacks(const std::vector<Term>& terms,
                            std::span<const Views* const> samples,
                            Completion completion,
                            const PassLimits& limits) {
  std::vector<ViewName> students = StudentViews(terms);
  std::erase_if(students, [&](ViewName view) {
    return CompletionOf(view) != completion;
  });
  std::vector<Pack> packs;
  int64_t tokens = 0;  // of the last pack
  for (size_t sample = 0; sample < samples.size(); ++sample) {
    PackPart part = {sample, students};
    std::erase_if(part.students, [&](ViewName view) {
      return !IsScored(view, terms, *samples[sample]);
    });
    if (part.students.empty()) continue;
    const int64_t more =
        PlanPass(Pick(*samples[sample], part.students)).num_tokens;
    if (packs.empty() || tokens + more > limits.pack_tokens) {
      packs.emplace_back();
      tokens = 0;
    }
    tokens += more;
    packs.back().push_back(std::move(part));
  }
  return packs;
}

}  // namespace dapd
