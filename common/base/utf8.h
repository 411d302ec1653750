// Is a text well-formed UTF-8? What is written as JSON or shown to a tokenizer
// has to be; file names and Parquet columns need not.
#pragma once

#include "absl/strings/string_view.h"

namespace dapd {

// No overlong forms, no surrogates, nothing above U+10FFFF (RFC 3629).
bool IsUtf8(absl::string_view text);

}  // namespace dapd
