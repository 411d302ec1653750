// The presets (objective.preset): the terms of a method, and the other settings
// that belong to it (docs/objective.md, "Presets").
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace dapd {

// The preset whose steps are of two kinds (step_kind.h).
inline constexpr char kGkdPreset[] = "gkd";

// Returns "dapd", "opsd", ...
std::vector<std::string> PresetNames();

// The default that a preset gives to a key. A value that is given anywhere else
// takes precedence.
struct PresetDefault {
  std::string key;
  std::string value;  // as a scalar of YAML
};
std::vector<PresetDefault> PresetDefaults(const std::string& preset);

// Returns the keys among those listed for ExpandTerms that the preset's terms
// do not read, because the terms have their own values or no use for one. A
// given value then has no effect.
std::vector<std::string> UnreadKeys(const std::string& preset);

// Returns objective.terms if there are any, otherwise the preset's terms, which
// take divergence, clip, support, reduction, skip_tokens and teacher_weights
// from the section, except for UnreadKeys.
//
//   dapd   the six terms of the paper. With w(beta_i, beta_p, f) = kappa f /
//          (1 + beta_i + beta_p) (1, beta_i, beta_p) for (entangled, inference,
//          privileged) they are weighted w(reference_guided, lambda) and
//          w(rollout_guided, 1 - lambda). The reference-guided direction holds
//          entangled_rollout, inference_reference and privileged_rollout.
//          dapd.cross_weights reads the Cross views of all four terms that have
//          them, if it is given.
//   opsd, opsd_v1       none_rollout <- cross_rollout
//   privileged_anchor   self_rollout <- cross_rollout
//   sdft                none_rollout <- demonstration_rollout
//   purified_opsd       none_rollout <- none moved by cross - probe
//   dopd                none_rollout <- cross_rollout of the teacher or of the
//                       live adapter, token by token: two terms that share the
//                       tokens, one for each of its divergences
//   sdpo                none_rollout <- sibling_rollout of the moving average
//                       (Huebotter et al., arXiv 2601.20802)
//   sft                 none_reference <- the reference's own tokens
//   opd                 none_rollout <- none_rollout of the teacher
//   gkd                 the same, and none_reference <- none_reference, in
//   turns
//
// One term weighs kappa; dopd's two both do. Where teacher_weights has several
// names, every one of them has the terms of the preset to itself, with kappa
// divided by their number, and its name behind the names of the terms:
// opsd_big, opsd_small.
std::vector<Term> ExpandTerms(const ObjectiveSection& section);

// Returns whether a step samples answers: its terms read rollouts, or an answer
// takes the place of the reference.
bool StepsNeedAnswers(const Config& config);
// Returns whether a run needs rollout workers, for answers that its terms or
// its evaluation read; and whether it needs teachers of the student's own
// model, which rows that name no teacher may ask, too.
bool AsksRolloutWorkers(const Config& config);
bool AsksTeachers(const Config& config);
// Returns the further teachers that the terms read, in the order of `teachers`:
// the named ones, or all of them if a term takes each row's teacher.
std::vector<TeacherModel> TeachersAsked(const Config& config);

}  // namespace dapd
