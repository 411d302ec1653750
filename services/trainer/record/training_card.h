// The section on training of a model card (common/model/spec/model_card.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "services/trainer/record/evaluation_report.h"

namespace dapd {

struct CardRun {
  std::string name;
  int64_t step = 0;  // of the adapter
  std::string adapter_digest;
  std::string base_digest;
  std::string data_digest;
  std::map<std::string, std::string> settings;  // ResultSettings
};

// Formats steps, digests, the held-out figures before training and of this
// adapter with their 95 % intervals, and the settings that determine the
// result. `evaluations`: by "before", "after", "step-000050".
std::string FormatTraining(
    const CardRun& run,
    const std::map<std::string, EvaluationReport>& evaluations);

}  // namespace dapd
