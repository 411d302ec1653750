// Implements Python's methods of str that templates call, by code points. All
// texts are well-formed UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/tokenizer/jinja/value.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd::jinja {

std::vector<CodePoint> Characters(const std::string& text);

// Returns what Python's str.isspace returns for this character.
bool IsPythonSpace(int32_t c);

// Returns the position of `mark` in `text` from `from` on; std::string::npos if
// there is none. The time is proportional to the sum of both lengths.
// std::string::find can take time in proportion to their product, and a
// template may be made to cause that.
size_t FindText(absl::string_view text,
                absl::string_view mark,
                size_t from = 0);

// Removes the given characters (white space, if `characters` is not a text) at
// the chosen ends.
std::string Strip(const std::string& text,
                  const Value& characters,
                  bool left,
                  bool right);

// Implements split() and rsplit() with at most `max_splits` splits; at white
// space, if `separator` is not a text. Returns INVALID_ARGUMENT for an empty
// separator, and RESOURCE_EXHAUSTED for more parts than a value may hold.
absl::StatusOr<List> SplitText(const std::string& text,
                               const Value& separator,
                               int64_t max_splits,
                               bool from_right);

// Implements splitlines(): splits at every character at which Python ends a
// line.
List SplitLines(const std::string& text, bool keep_ends);

// Implements replace() for the first `count` occurrences. If `from` is empty,
// inserts `to` in front of every character and at the end. Returns
// RESOURCE_EXHAUSTED if the result is too long.
absl::StatusOr<std::string> ReplaceText(const std::string& text,
                                        const std::string& from,
                                        const std::string& to,
                                        int64_t count);

// Implements ljust(), rjust() and center(): fills the chosen sides. Returns
// RESOURCE_EXHAUSTED if the result is too long.
absl::StatusOr<std::string> Justify(const std::string& text,
                                    int64_t width,
                                    const std::string& fill,
                                    bool fills_left,
                                    bool fills_right);

// Implements upper() and lower(), independent of any language.
std::string Recase(const std::string& text, bool upper);
// Implements capitalize(): the first letter becomes title case, the others
// become lower case.
std::string Capitalize(const std::string& text);
// Implements title(): capitalizes each run of letters that have a case.
std::string Title(const std::string& text);
// Implement swapcase() and casefold().
std::string SwapCase(const std::string& text);
std::string FoldCase(const std::string& text);

// Implement isalnum(), isalpha(), isascii(), ...: they test the whole text.
bool IsAlphanumeric(const std::string& text);
bool IsAlphabetic(const std::string& text);
bool IsAscii(const std::string& text);
bool IsDecimal(const std::string& text);
bool IsDigits(const std::string& text);
bool IsNumeric(const std::string& text);
bool IsBlank(const std::string& text);
bool IsLowerCase(const std::string& text);
bool IsUpperCase(const std::string& text);
bool IsTitleCase(const std::string& text);

// Returns the text that int() and float() read: each decimal digit of any
// script becomes an ASCII digit, and white space around the text is removed.
std::string AsciiDigits(const std::string& text);

// `c` must be a valid code point.
void AppendCharacter(uint32_t c, std::string& text);

}  // namespace dapd::jinja
