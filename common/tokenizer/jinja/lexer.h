// Splits a template into text and the tokens inside {{ }} and {% %}, with the
// whitespace rules of trim_blocks and lstrip_blocks, which transformers sets.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd::jinja {

struct Token {
  enum class Kind {
    kText,         // literal output
    kOutputBegin,  // {{
    kOutputEnd,    // }}
    kBlockBegin,   // {%
    kBlockEnd,     // %}
    kName,
    kString,  // unescaped
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
};

absl::StatusOr<std::vector<Token>> Lex(const std::string& source);

}  // namespace dapd::jinja
