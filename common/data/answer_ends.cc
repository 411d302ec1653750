#include "common/data/answer_ends.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "common/base/printable.h"

namespace dapd {
namespace {

constexpr char kAnswer[] = "the answer 42";
// Chat templates open a thought with one of these texts.
constexpr const char* kThoughtMarks[] = {"<think>",
                                         "<thinking>",
                                         "<thought>",
                                         "<reasoning>",
                                         "<seed:think>",
                                         "<|begin_of_thought|>",
                                         "<|START_THINKING|>",
                                         "[THINK]"};

std::vector<std::string> EndOfTurn(const Tokenizer& tokenizer,
                                   const std::string& rendered,
                                   const std::vector<int64_t>& eos_token_ids,
                                   const std::string& source) {
  const size_t answer = rendered.rfind(kAnswer);
  if (answer == std::string::npos) return {};
  const std::string behind = rendered.substr(answer + sizeof(kAnswer) - 1);
  const auto ids = tokenizer.Encode(behind);
  if (!ids.ok()) return {};
  const std::string eos = absl::StrJoin(eos_token_ids, ", ");
  // White space may stand in front of the end token.
  const auto end = std::find_if(ids->begin(), ids->end(), [&](int32_t id) {
    return tokenizer.IsAdded(id);
  });
  if (end == ids->end()) {
    return {absl::StrCat(
        "the chat template writes no token behind an answer, only ",
        behind.empty() ? "nothing" : absl::StrCat("'", Printable(behind), "'"),
        ", so a model that is trained with it ends its answers without an end "
        "token (eos_token_id ",
        eos,
        " in ",
        source,
        ")")};
  }
  if (std::find(eos_token_ids.begin(), eos_token_ids.end(), *end) !=
      eos_token_ids.end()) {
    return {};
  }
  const auto token = tokenizer.Decode({*end}, /*skip_special_tokens=*/false);
  return {absl::StrCat("the chat template ends an answer with '",
                       Printable(token.value_or("")),
                       "' (",
                       *end,
                       "), which is not an end token (eos_token_id ",
                       eos,
                       " in ",
                       source,
                       "), so answers continue behind their end; add ",
                       *end,
                       " to eos_token_id there")};
}

std::vector<std::string> OpenThoughts(const std::string& prompt) {
  const absl::string_view text = absl::StripTrailingAsciiWhitespace(prompt);
  for (const char* mark : kThoughtMarks) {
    if (!absl::EndsWith(text, mark)) continue;
    return {absl::StrCat(
        "the chat template's generation prompt ends with '",
        mark,
        "', so views of a reference train the reference inside an open "
        "thought; use a template that closes it where thinking is off")};
  }
  return {};
}

}  // namespace

std::vector<std::string> AnswerEndFindings(
    const Tokenizer& tokenizer,
    const ChatTemplate& chat_template,
    const std::vector<int64_t>& eos_token_ids,
    const std::string& source) {
  std::vector<std::string> findings;
  const auto rendered =
      chat_template.Render({{"user", "the question"}, {"assistant", kAnswer}},
                           {.enable_thinking = false});
  if (rendered.ok()) {
    findings = EndOfTurn(tokenizer, *rendered, eos_token_ids, source);
  }
  const auto prompt = chat_template.Render(
      {{"user", "the question"}},
      {.add_generation_prompt = true, .enable_thinking = false});
  if (prompt.ok()) {
    for (std::string& finding : OpenThoughts(*prompt)) {
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

}  // namespace dapd
