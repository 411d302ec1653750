// Reads what the model folder of a configuration says about the model, and its
// text pipeline: everything that building views needs, and that can be checked
// quickly before weights are loaded.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/data/text_pipeline.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct ModelText {
  std::string folder;  // the model's folder
  ModelConfig model;
  FurtherTeachers teachers;  // that the terms read
  TextPipeline text;

  // Returns the longest view that every model in use takes.
  int64_t max_view() const {
    return CommonPositions(model.max_positions, teachers);
  }
};

// Reads model.path, which is a folder or an id; builds views as the
// configuration says. The further teachers are found, but their tokenizers are
// not compared (teacher_text.h). Returns an error with exit code kConfig if the
// model does not allow teacher.top_k.
absl::StatusOr<ModelText> ReadModelText(const Config& config);

// Logs a warning for each of AnswerEndFindings.
void WarnOfAnswerEnds(const ModelText& base);

}  // namespace dapd
