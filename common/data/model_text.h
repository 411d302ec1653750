// What the model of a configuration says of itself, and its text pipeline: all
// that is needed to build views, and what is quick to check before weights are
// loaded.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/text_pipeline.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct ModelText {
  std::string folder;  // the model's
  ModelConfig model;
  TextPipeline text;
};

// Of model.path, a folder or an id; views as the configuration wants them. Exit
// code kConfig if the model does not allow teacher.top_k.
absl::StatusOr<ModelText> ReadModelText(const Config& config);

// Logs a warning for each of AnswerEndFindings.
void WarnOfAnswerEnds(const ModelText& base);

}  // namespace dapd
