// Python's methods of str, as far as templates call them, by code points. All
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

// What Python's str.isspace accepts.
bool IsPythonSpace(int32_t c);

// Where `mark` is in `text`, not before `from`; std::string::npos if it is not.
// The time grows with the sum of both lengths: that of std::string::find can
// grow with their product, which a template may be made for.
size_t FindText(absl::string_view text,
                absl::string_view mark,
                size_t from = 0);

// Without the given characters (white space, if that is no text) at the ends
// that are asked for.
std::string Strip(const std::string& text,
                  const Value& characters,
                  bool left,
                  bool right);

// split() or rsplit() with at most `max_splits` splits: at white space, if
// `separator` is no text. INVALID_ARGUMENT for an empty separator;
// RESOURCE_EXHAUSTED for so many parts that no value may hold them.
absl::StatusOr<List> SplitText(const std::string& text,
                               const Value& separator,
                               int64_t max_splits,
                               bool from_right);

// splitlines(), at every character that Python ends a line at.
List SplitLines(const std::string& text, bool keep_ends);

// replace() of the first `count`; in front of every character and at the end,
// if `from` is empty. RESOURCE_EXHAUSTED for too long a text.
absl::StatusOr<std::string> ReplaceText(const std::string& text,
                                        const std::string& from,
                                        const std::string& to,
                                        int64_t count);

// ljust(), rjust() or center(): filled on the sides that are asked for.
// RESOURCE_EXHAUSTED for too long a text.
absl::StatusOr<std::string> Justify(const std::string& text,
                                    int64_t width,
                                    const std::string& fill,
                                    bool fills_left,
                                    bool fills_right);

// upper() or lower(), of no language.
std::string Recase(const std::string& text, bool upper);
// capitalize(): the first letter as in a title, the others lower.
std::string Capitalize(const std::string& text);
// title(): each run of letters that have a case is capitalized.
std::string Title(const std::string& text);
// swapcase() and casefold().
std::string SwapCase(const std::string& text);
std::string FoldCase(const std::string& text);

// isalnum(), isalpha(), isascii(), ...: what they say of the whole text.
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

// The text with each decimal digit of any script as that of ASCII, and without
// white space around it: what int() and float() read.
std::string AsciiDigits(const std::string& text);

// `c` must be a valid code point.
void AppendCharacter(uint32_t c, std::string& text);

}  // namespace dapd::jinja
