#include "common/data/model_text.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/hub/model_folder.h"

namespace dapd {

absl::StatusOr<ModelText> ReadModelText(const Config& config) {
  ASSIGN_OR_RETURN(std::string folder, FindModelFolder(config.model.path));
  ASSIGN_OR_RETURN(ModelConfig model, ReadModelConfig(folder));
  ASSIGN_OR_RETURN(
      TextPipeline text,
      LoadTextPipeline(
          folder, MakeViewOptions(config), model.eos_token_ids.front()));
  text.vocab_size = model.vocab_size;
  return ModelText{std::move(folder), std::move(model), std::move(text)};
}

}  // namespace dapd
