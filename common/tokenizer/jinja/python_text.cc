#include "common/tokenizer/jinja/python_text.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <cstring>
#include <set>

namespace dapd::jinja {
namespace {

// A list of more is refused by its weight, but only once it is there.
constexpr size_t kMaxParts = size_t{1} << 20;

absl::Status TooManyParts() {
  return absl::ResourceExhaustedError("split makes too many parts");
}

}  // namespace

bool IsPythonSpace(int32_t c) {
  return IsWhitespace(c) || (c >= 0x1C && c <= 0x1F);
}

std::vector<CodePoint> Characters(const std::string& text) {
  return DecodeUtf8(text).value_or(std::vector<CodePoint>{});
}

size_t FindText(absl::string_view text, absl::string_view mark, size_t from) {
  if (from > text.size()) return std::string::npos;
  const void* found = ::memmem(
      text.data() + from, text.size() - from, mark.data(), mark.size());
  return found == nullptr ? std::string::npos
                          : static_cast<size_t>(
                                static_cast<const char*>(found) - text.data());
}

std::string Strip(const std::string& text,
                  const Value& characters,
                  bool left,
                  bool right) {
  const std::vector<CodePoint> letters = Characters(text);
  std::set<int32_t> given;
  if (characters.is_string()) {
    for (const CodePoint& c : Characters(characters.string())) {
      given.insert(c.value);
    }
  }
  const auto is_unwanted = [&](const CodePoint& c) {
    return characters.is_string() ? given.contains(c.value)
                                  : IsPythonSpace(c.value);
  };
  size_t begin = 0;
  size_t end = letters.size();
  while (left && begin < end && is_unwanted(letters[begin])) ++begin;
  while (right && end > begin && is_unwanted(letters[end - 1])) --end;
  if (begin == end) return "";
  return text.substr(letters[begin].begin,
                     letters[end - 1].end - letters[begin].begin);
}

absl::StatusOr<List> SplitText(const std::string& text,
                               const Value& separator,
                               const Value& max_splits) {
  List parts;
  int64_t left = max_splits.is_int() ? max_splits.integer() : -1;
  if (!separator.is_string()) {
    // Runs of white space separate; none at the ends.
    std::string word;
    for (const CodePoint& letter : Characters(text)) {
      if (!IsPythonSpace(letter.value)) {
        word += text.substr(letter.begin, letter.end - letter.begin);
      } else if (!word.empty()) {
        if (parts.size() == kMaxParts) return TooManyParts();
        parts.emplace_back(word);
        word.clear();
      }
    }
    if (!word.empty()) parts.emplace_back(word);
    if (left >= 0)
      return absl::InvalidArgumentError("split(None, n) is not supported");
    return parts;
  }
  const std::string& mark = separator.string();
  if (mark.empty()) return absl::InvalidArgumentError("split: empty separator");
  size_t start = 0;
  for (size_t found = FindText(text, mark);
       found != std::string::npos && left != 0;
       found = FindText(text, mark, start)) {
    if (parts.size() == kMaxParts) return TooManyParts();
    parts.emplace_back(text.substr(start, found - start));
    start = found + mark.size();
    if (left > 0) --left;
  }
  parts.emplace_back(text.substr(start));
  return parts;
}

std::string Recase(const std::string& text, bool upper) {
  icu::UnicodeString unicode = icu::UnicodeString::fromUTF8(text);
  if (upper) {
    unicode.toUpper(icu::Locale::getRoot());
  } else {
    unicode.toLower(icu::Locale::getRoot());
  }
  std::string out;
  unicode.toUTF8String(out);
  return out;
}

std::string Capitalize(const std::string& text) {
  const std::vector<CodePoint> letters = Characters(text);
  if (letters.empty()) return "";
  const std::string first = text.substr(0, letters[0].end);
  UErrorCode error = U_ZERO_ERROR;
  std::string title;
  icu::StringByteSink<std::string> sink(&title);
  icu::CaseMap::utf8ToTitle(
      "",
      U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT,
      nullptr,
      first,
      sink,
      nullptr,
      error);
  // How a letter becomes lower depends on those before it.
  return title + Recase(text, false).substr(Recase(first, false).size());
}

std::string Title(const std::string& text) {
  std::string title;
  std::string word;
  for (const CodePoint& letter : Characters(text)) {
    const std::string bytes =
        text.substr(letter.begin, letter.end - letter.begin);
    if (u_hasBinaryProperty(letter.value, UCHAR_CASED)) {
      word += bytes;
      continue;
    }
    title += Capitalize(word) + bytes;
    word.clear();
  }
  return title + Capitalize(word);
}

}  // namespace dapd::jinja
