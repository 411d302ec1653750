#include "services/cli/answer_source.h"

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"

namespace dapd {

absl::Status CheckPromptsFit(const std::vector<AnswerPrompt>& prompts,
                             int64_t max_new_tokens,
                             int64_t context) {
  for (const AnswerPrompt& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size());
    // Their sum might overflow: --max-new-tokens may be any int64.
    if (length > 0 && max_new_tokens <= context - length) continue;
    return DataError(
        absl::StrCat(prompt.name,
                     ": a prompt of ",
                     length,
                     " tokens and an answer of ",
                     max_new_tokens,
                     " do not fit the context of ",
                     context,
                     "; shorten the prompt or lower --max-new-tokens"));
  }
  return absl::OkStatus();
}

}  // namespace dapd
