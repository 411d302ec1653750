// Reads what the model folder of a configuration says about the model, and its
// text pipeline: everything that building views needs, and that can be checked
// quickly before weights are loaded.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/text_pipeline.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct ModelText {
  std::string folder;  // the model's folder
  ModelConfig model;
  TextPipeline text;
};

// Reads model.path, which is a folder or an id; builds views as the
// configuration says. Returns an error with exit code kConfig if the model does
// not allow teacher.top_k.
absl::StatusOr<ModelText> ReadModelText(const Config& config);

// Logs a warning for each of AnswerEndFindings.
void WarnOfAnswerEnds(const ModelText& base);

}  // namespace dapd
