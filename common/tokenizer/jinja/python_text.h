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

// split(separator, max_splits): at white space, if `separator` is no text;
// everywhere, if `max_splits` is no integer. INVALID_ARGUMENT for an empty
// separator, and for white space with a number; RESOURCE_EXHAUSTED for so many
// parts that no value may hold them.
absl::StatusOr<List> SplitText(const std::string& text,
                               const Value& separator,
                               const Value& max_splits);

// upper() or lower(), of no language.
std::string Recase(const std::string& text, bool upper);
// capitalize(): the first letter as in a title, the others lower.
std::string Capitalize(const std::string& text);
// title(): each run of letters that have a case is capitalized.
std::string Title(const std::string& text);

}  // namespace dapd::jinja
