#include "common/config/preset_terms.h"

namespace dapd {
namespace {

// As lasgroup/SDPO has it: micro-batches of one there, so that every answer
// weighs alike and one that is masked counts as 0.
std::vector<Term> SdpoTerms(const ObjectiveSection::Sdpo& section) {
  Term term{.name = "sdpo",
            .student = ViewName::kNoneRollout,
            .target = TeacherPass{WeightSet::kEma, ViewName::kSiblingRollout},
            .reduction = Reduction::kSeqMeanKeepMasked,
            .importance = Importance::kToken,
            .importance_cap = 2.0,
            .weight = 1.0};
  term.divergence = {.kind = section.divergence == "reverse_kl"
                                 ? DivergenceKind::kReverseKl
                                 : DivergenceKind::kJensenShannon,
                     .beta = 0.5,
                     .clip = kNoClip};
  term.support = {
      .kind = SupportKind::kStudentTopK, .k = section.top_k, .tail = true};
  return {term};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> PresetSettings(
    const std::string& preset) {
  if (preset == "sdpo") {
    return {{"rollout.group_size", "8"}, {"teacher.ema_rate", "0.05"}};
  }
  return {};
}

std::vector<Term> ExpandTerms(const ObjectiveSection& section) {
  if (!section.terms.empty()) return section.terms;
  if (section.preset == "sdpo") return SdpoTerms(section.sdpo);
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
                        ViewName student,
                        TeacherPass teacher,
                        double weight) {
    Term term{
        .name = name, .student = student, .target = teacher, .weight = weight};
    term.divergence.clip = section.component_clip;
    return term;
  };
  using enum ViewName;
  using enum WeightSet;
  return {
      term("entangled_rollout", kNoneRollout, {kSnapshot, kCrossRollout}, r),
      term("inference_reference",
           kSelfReference,
           {kBase, kNoneReference},
           r * reference.beta_inference),
      term("privileged_rollout",
           kSelfRollout,
           {kBase, kCrossRollout},
           r * reference.beta_privileged),
      term("entangled_reference",
           kNoneReference,
           {kSnapshot, kCrossReference},
           y),
      term("inference_rollout",
           kSelfRollout,
           {kBase, kNoneRollout},
           y * rollout.beta_inference),
      term("privileged_reference",
           kSelfReference,
           {kBase, kCrossReference},
           y * rollout.beta_privileged),
  };
}

}  // namespace dapd
