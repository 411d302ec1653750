// UTF-8: checks and conversions. JSON and the text for a tokenizer must be
// well-formed; file names and Parquet columns may not be.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// Returns whether `text` is well-formed: no overlong forms, no surrogates,
// nothing above U+10FFFF (RFC 3629).
bool IsUtf8(absl::string_view text);

// Returns the length in bytes, 1 to 4, of the first character of `text` and
// stores the character; 0 if `text` is empty or does not begin with a
// well-formed character.
size_t DecodeCharacter(absl::string_view text, char32_t* character);

// Returns `text` with U+FFFD in place of ill-formed bytes: one for each
// incomplete character, otherwise one for each byte (as Unicode recommends and
// nlohmann's error_handler_t::replace does). Well-formed text is returned
// unchanged.
std::string ToUtf8(absl::string_view text);

// Returns whether a byte of UTF-8 is the first of its character.
bool BeginsCharacter(char byte);

// Returns the longest beginning of `text` with at most `max_bytes` bytes that
// does not end within a character.
absl::string_view Utf8Head(absl::string_view text, size_t max_bytes);

}  // namespace dapd
