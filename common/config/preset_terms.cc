#include "common/config/preset_terms.h"

namespace dapd {

std::vector<TermConfig> ExpandTerms(const ObjectiveSection& section) {
  if (!section.terms.empty()) return section.terms;
  const auto unit = [&](const ObjectiveSection::Guided& guided,
                        double fraction) {
    return section.kappa * fraction /
           (1.0 + guided.beta_inference + guided.beta_privileged);
  };
  const ObjectiveSection::Guided& reference = section.reference_guided;
  const ObjectiveSection::Guided& rollout = section.rollout_guided;
  const double r = unit(reference, section.lambda);
  const double y = unit(rollout, 1.0 - section.lambda);
  const auto term = [&](const char* name,
                        const char* student,
                        const char* teacher,
                        const char* weights,
                        double weight) {
    return TermConfig{.name = name,
                      .student = student,
                      .teacher = teacher,
                      .teacher_weights = weights,
                      .clip = section.component_clip,
                      .weight = weight};
  };
  return {
      term("entangled_rollout", "none_rollout", "cross_rollout", "snapshot", r),
      term("inference_reference",
           "self_reference",
           "none_reference",
           "base",
           r * reference.beta_inference),
      term("privileged_rollout",
           "self_rollout",
           "cross_rollout",
           "base",
           r * reference.beta_privileged),
      term("entangled_reference",
           "none_reference",
           "cross_reference",
           "snapshot",
           y),
      term("inference_rollout",
           "self_rollout",
           "none_rollout",
           "base",
           y * rollout.beta_inference),
      term("privileged_reference",
           "self_reference",
           "cross_reference",
           "base",
           y * rollout.beta_privileged),
  };
}

}  // namespace dapd
