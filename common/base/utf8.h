// Is a text well-formed UTF-8? What is written as JSON or shown to a tokenizer
// has to be; file names and Parquet columns need not.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// No overlong forms, no surrogates, nothing above U+10FFFF (RFC 3629).
bool IsUtf8(absl::string_view text);

// The first character of `text` and its length in bytes, 1 to 4; 0 if the text
// is empty or does not begin with a well-formed character.
size_t DecodeCharacter(absl::string_view text, char32_t* character);

// `text` with U+FFFD in place of what is no well-formed character, one for each
// beginning of one, else for each byte (as Unicode recommends, and nlohmann's
// error_handler_t::replace does). Well-formed text stays as it is.
std::string ToUtf8(absl::string_view text);

// What `text` begins with: `max_bytes` at most, and no part of a character at
// the end.
absl::string_view Utf8Head(absl::string_view text, size_t max_bytes);

}  // namespace dapd
