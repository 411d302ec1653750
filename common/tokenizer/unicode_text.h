// Decodes UTF-8 text into code points, and defines the character classes of
// pre-tokenisers: general categories of Unicode 16 (newer_characters.h), and
// White_Space.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Holds a decoded character and its place in the text.
struct CodePoint {
  int32_t value = 0;
  size_t begin = 0;  // byte offset
  size_t end = 0;
};

// Returns INVALID_ARGUMENT with the byte offset for ill-formed UTF-8.
absl::StatusOr<std::vector<CodePoint>> DecodeUtf8(absl::string_view text);

bool IsLetter(int32_t c);      // \p{L}
bool IsNumber(int32_t c);      // \p{N}
bool IsWhitespace(int32_t c);  // \s
// Return whether the character is a letter or mark, except for small letters
// and for capital letters: [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and
// [\p{Ll}\p{Lm}\p{Lo}\p{M}].
bool IsCapitalOrUncased(int32_t c);
bool IsSmallOrUncased(int32_t c);

// These character classes belong to parts of Hugging Face's `tokenizers`, each
// with its own Unicode version: the pre-tokenisers Digits (17) and Punctuation
// (8), and \w of Whitespace and of single_word (16).
bool IsDigitOfRust(int32_t c);
bool IsPunctuation(int32_t c);
bool IsWordCharacter(int32_t c);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Returns well-formed text in a normal form, by Unicode 9, the version that
// `tokenizers` has for it.
std::string Normalize(absl::string_view text, NormalForm form);
std::string ComposeNfc(absl::string_view text);

// Converts every character to lower case, independent of its neighbours.
std::string LowerCase(absl::string_view text);

// Returns an upper bound for the number of tokens of well-formed text: the
// bytes of the text or, if they are more, of its NFC form. Every token has at
// least one byte.
int64_t MostTokens(absl::string_view text);

// Replaces every maximal ill-formed subsequence by U+FFFD.
std::string RepairUtf8(absl::string_view bytes);

}  // namespace dapd
