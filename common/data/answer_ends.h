// Whether a model's answers can end as its chat template ends them, and where
// its thoughts begin: what goes wrong without an error when files of a model
// folder do not fit each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"

namespace dapd {

// A sentence for each of these:
// * the token that the template writes behind an answer is none of
//   `eos_token_ids` (ModelConfig): answers go on behind their end;
// * the template writes no token at all behind an answer;
// * the generation prompt ends in thoughts that are open: a view of a reference
//   trains the reference inside them.
// `source`: where eos_token_ids are from, for the sentences. Nothing where the
// template refuses a question and an answer without a system message.
std::vector<std::string> AnswerEndFindings(
    const Tokenizer& tokenizer,
    const ChatTemplate& chat_template,
    const std::vector<int64_t>& eos_token_ids,
    const std::string& source);

}  // namespace dapd
