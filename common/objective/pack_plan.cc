#include "common/objective/pack_plan.h"

#include <algorithm>
#include <utility>

#include "common/base/status_error.h"
#include "common/model/weights/device_memory.h"
#include "common/objective/view_pass.h"

namespace dapd {

PassLimits MakePassLimits(const TrainerLimits& limits,
                          const ModelWeights& weights) {
  // Ranks that share a base run their passes together, so no rank may run
  // chunks by itself.
  return {.pack_tokens = limits.pack_tokens,
          .activation_bytes = limits.activation_bytes,
          .chunk_tokens = weights.source == nullptr ? limits.chunk_tokens : 0,
          .splits_packs = limits.splits_packs};
}

PassLimits MakePassLimits(const Config& config, const ModelWeights& weights) {
  return MakePassLimits(
      ValueOrThrow(PlanTrainerLimits(
          config,
          weights.config,
          MemoryOf(weights.device(), config.run.gpu_processes))),
      weights);
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

// Returns whether any term has a token of `student` to score.
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
