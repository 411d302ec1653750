#include "common/config/step_kind.h"

#include <random>

#include "common/config/preset_terms.h"

namespace dapd {
namespace {

// Keeps the draws apart from others with the same seed.
constexpr uint32_t kPurpose = 0x676B64;

// Returns a number in [0, 1). The standard fixes every bit of it.
double UniformOf(uint64_t seed, int64_t step) {
  const auto at = static_cast<uint64_t>(step);
  std::seed_seq key{static_cast<uint32_t>(seed),
                    static_cast<uint32_t>(seed >> 32),
                    static_cast<uint32_t>(at),
                    static_cast<uint32_t>(at >> 32),
                    kPurpose};
  std::mt19937_64 twister(key);
  return static_cast<double>(twister() >> 11) * 0x1.0p-53;
}

}  // namespace

bool TakesTurns(const Config& config) {
  const ObjectiveSection& objective = config.objective;
  const double share = objective.gkd.reference_share;
  return objective.terms.empty() && objective.preset == kGkdPreset &&
         share > 0.0 && share < 1.0;
}

StepKind StepKindOf(const Config& config, int64_t step) {
  if (!TakesTurns(config)) return StepKind::kWhole;
  return UniformOf(config.run.seed, step) < config.objective.gkd.reference_share
             ? StepKind::kReferences
             : StepKind::kRollouts;
}

double ShareOfSteps(const Config& config, Completion completion) {
  if (!TakesTurns(config)) return 1.0;
  const double share = config.objective.gkd.reference_share;
  return completion == Completion::kReference ? share : 1.0 - share;
}

}  // namespace dapd
