#include "common/config/vain_keys.h"

#include "absl/strings/str_cat.h"

#include "common/config/preset_terms.h"
#include "common/config/validate_config.h"

namespace dapd {

std::vector<std::string> WarningsOfVainKeys(const LoadedConfig& loaded) {
  std::vector<std::string> warnings;
  const RunConfig& run = loaded.config.run;
  if (run.gpus != kAllGpus && loaded.config.model.device == "cpu") {
    warnings.push_back(absl::StrCat("run.gpus (",
                                    loaded.origins.at("run.gpus"),
                                    ") has no effect: model.device is cpu"));
  }
  const EvaluationSection& evaluation = loaded.config.evaluation;
  if (evaluation.samples > 1 && evaluation.temperature == 0.0) {
    warnings.push_back(absl::StrCat("evaluation.samples (",
                                    loaded.origins.at("evaluation.samples"),
                                    ") has no effect: at "
                                    "evaluation.temperature 0 all answers to a "
                                    "problem are the same"));
  }
  if (!loaded.config.objective.terms.empty()) return warnings;
  const std::string& preset = loaded.config.objective.preset;
  for (const std::string& key : UnreadKeys(preset)) {
    const std::string& origin = loaded.origins.at(key);
    if (origin == "default") continue;
    warnings.push_back(absl::StrCat(key,
                                    " (",
                                    origin,
                                    ") has no effect: the terms of preset ",
                                    preset,
                                    " do not read it"));
  }
  return warnings;
}

}  // namespace dapd
