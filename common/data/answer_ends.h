// Checks whether a model's answers can end as its chat template ends them, and
// whether its answers begin outside a thought. Without this check, files of a
// model folder that do not fit each other cause no error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

// Returns one sentence for each of these findings:
// * The token that the template writes behind an answer is not in
//   `eos_token_ids` (ModelConfig), so answers go on behind their end.
// * The template writes no token behind an answer.
// * The generation prompt ends in an open thought, so a view of a reference
//   trains the reference inside the thought.
// The sentences name `source` as the place of `eos_token_ids`. Returns nothing
// if the template refuses a question and an answer without a system message.
std::vector<std::string> AnswerEndFindings(
    const Tokenizer& tokenizer,
    const ChatTemplate& chat_template,
    const std::vector<int64_t>& eos_token_ids,
    const std::string& source);

}  // namespace dapd
