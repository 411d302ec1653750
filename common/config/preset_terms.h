// The terms behind objective.preset.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/config/config.h"

namespace dapd {

// objective.terms if there are any, else the preset's. `dapd` gives the six
// terms of the paper; with w(beta_i, beta_p, f) = kappa f / (1 + beta_i +
// beta_p) (1, beta_i, beta_p) for (entangled, inference, privileged) they are
// weighted w(reference_guided, lambda) and w(rollout_guided, 1 - lambda). The
// reference-guided direction holds entangled_rollout, inference_reference and
// privileged_rollout. `sdpo` gives the one term of SDPO (Huebotter et al.,
// arXiv 2601.20802): none_rollout against what the moving average says in
// sibling_rollout.
std::vector<Term> ExpandTerms(const ObjectiveSection& section);

// What a preset's authors chose for keys outside of `objective`, as --set takes
// it: values of the keys that are given nowhere.
std::vector<std::pair<std::string, std::string>> PresetSettings(
    const std::string& preset);

}  // namespace dapd
