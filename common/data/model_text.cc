#include "common/data/model_text.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/data/answer_ends.h"
#include "common/data/template_support.h"
#include "common/hub/model_folder.h"

namespace dapd {
namespace {

// Teachers refuse payloads that they cannot send.
absl::Status CheckPayload(const TeacherSection& teacher,
                          const ModelConfig& model) {
  if (teacher.payload != Payload::kTopK || teacher.top_k <= model.vocab_size) {
    return absl::OkStatus();
  }
  return ConfigError(absl::StrCat("teacher.top_k (",
                                  teacher.top_k,
                                  ") is more than the model's vocabulary has (",
                                  model.vocab_size,
                                  "); lower it"));
}

}  // namespace

absl::StatusOr<ModelText> ReadModelText(const Config& config) {
  ASSIGN_OR_RETURN(std::string folder, FindModelFolder(config.model.path));
  ASSIGN_OR_RETURN(ModelConfig model, ReadModelConfig(folder));
  RETURN_IF_ERROR(CheckPayload(config.teacher, model));
  ViewOptions options = MakeViewOptions(config);
  ASSIGN_OR_RETURN(FurtherTeachers teachers, FindFurtherTeachers(config));
  options.max_view = CommonPositions(model.max_positions, teachers);
  ASSIGN_OR_RETURN(
      TextPipeline text,
      LoadTextPipeline(
          folder, std::move(options), model.eos_token_ids.front()));
  RETURN_IF_ERROR(CheckTemplateSupport(config, *text.chat_template));
  text.vocab_size = model.vocab_size;
  return ModelText{std::move(folder),
                   std::move(model),
                   std::move(teachers),
                   std::move(text)};
}

void WarnOfAnswerEnds(const ModelText& base) {
  const std::string generation =
      JoinPath(base.folder, "generation_config.json");
  const std::string source = FileExists(generation)
                                 ? generation
                                 : JoinPath(base.folder, "config.json");
  for (const std::string& finding : AnswerEndFindings(*base.text.tokenizer,
                                                      *base.text.chat_template,
                                                      base.model.eos_token_ids,
                                                      source)) {
    LogWarning(finding);
  }
}

}  // namespace dapd
