// UTF-8 text as code points, with the character classes that pre-tokenisers
// speak of: general categories of Unicode 16 (newer_characters.h), and
// White_Space.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// One decoded character and where it lies in the text.
struct CodePoint {
  int32_t value = 0;
  size_t begin = 0;  // byte offset
  size_t end = 0;
};

// INVALID_ARGUMENT for ill-formed UTF-8, with the byte offset.
absl::StatusOr<std::vector<CodePoint>> DecodeUtf8(absl::string_view text);

bool IsLetter(int32_t c);      // \p{L}
bool IsNumber(int32_t c);      // \p{N}
bool IsWhitespace(int32_t c);  // \s
// Letters and marks without the small letters, and without the capital ones:
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}].
bool IsCapitalOrUncased(int32_t c);
bool IsSmallOrUncased(int32_t c);

// As the parts of Hugging Face's `tokenizers` see characters, each by the
// Unicode version of its own: the pre-tokenisers Digits (17) and Punctuation
// (8), and \w of Whitespace and of single_word (16).
bool IsDigitOfRust(int32_t c);
bool IsPunctuation(int32_t c);
bool IsWordCharacter(int32_t c);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Well-formed text in a normal form, by the Unicode version that `tokenizers`
// knows for that, 9.
std::string Normalize(absl::string_view text, NormalForm form);
std::string ComposeNfc(absl::string_view text);

// Every character in lower case by itself.
std::string LowerCase(absl::string_view text);

// No fewer than the tokens of well-formed text, which are no shorter than a
// byte: the bytes of the text or, if they are more, of its composition.
int64_t MostTokens(absl::string_view text);

// Replaces every maximal ill-formed subsequence by U+FFFD.
std::string RepairUtf8(absl::string_view bytes);

}  // namespace dapd
