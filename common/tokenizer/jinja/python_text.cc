#include "common/tokenizer/jinja/python_text.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace dapd::jinja {
namespace {

// A list with more parts would be refused by its weight, but only after it is
// built.
constexpr size_t kMaxParts = size_t{1} << 20;

constexpr size_t kMaxTextBytes = size_t{16} << 20;

absl::Status TooManyParts() {
  return absl::ResourceExhaustedError("split makes too many parts");
}

// Holds the bytes between two parts of a text.
struct Gap {
  size_t begin = 0;
  size_t end = 0;
};

// Returns whether str.splitlines() ends a line at this character.
bool EndsLine(int32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
         c == 0x2028 || c == 0x2029;
}

template <typename Test>
bool AllOf(const std::string& text, Test test) {
  const std::vector<CodePoint> letters = Characters(text);
  return !letters.empty() &&
         std::all_of(letters.begin(), letters.end(), [&](const CodePoint& c) {
           return test(c.value);
         });
}

int32_t NumericType(int32_t c) {
  return u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
}

bool IsTitleLetter(int32_t c) { return u_charType(c) == U_TITLECASE_LETTER; }

// Returns whether there is a letter with the wanted case, and none with the
// other case.
bool HasOnlyCase(const std::string& text, bool upper) {
  bool found = false;
  for (const CodePoint& c : Characters(text)) {
    const bool wanted =
        upper ? u_isUUppercase(c.value) != 0 : u_isULowercase(c.value) != 0;
    const bool other =
        upper ? u_isULowercase(c.value) != 0 : u_isUUppercase(c.value) != 0;
    if (other || IsTitleLetter(c.value)) return false;
    found |= wanted;
  }
  return found;
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
                               int64_t max_splits,
                               bool from_right) {
  const auto most = static_cast<uint64_t>(max_splits);
  // This list holds the separators, from left to right.
  std::vector<Gap> gaps;
  const auto add = [&](size_t begin, size_t end) {
    gaps.push_back({begin, end});
    return gaps.size() <= kMaxParts;
  };
  size_t begin = 0;
  size_t end = text.size();
  if (separator.is_string()) {
    const std::string& mark = separator.string();
    if (mark.empty())
      return absl::InvalidArgumentError("split: empty separator");
    if (!from_right) {
      for (size_t at = FindText(text, mark); at != std::string::npos;
           at = FindText(text, mark, at + mark.size())) {
        if (!add(at, at + mark.size())) return TooManyParts();
      }
    } else {
      // The search runs from the end, since separators may overlap.
      const std::string turned(text.rbegin(), text.rend());
      const std::string turned_mark(mark.rbegin(), mark.rend());
      for (size_t at = FindText(turned, turned_mark); at != std::string::npos;
           at = FindText(turned, turned_mark, at + mark.size())) {
        const size_t stop = text.size() - at;
        if (!add(stop - mark.size(), stop)) return TooManyParts();
      }
      std::reverse(gaps.begin(), gaps.end());
    }
  } else {
    // Runs of white space separate parts, and are removed at the ends.
    for (const CodePoint& letter : Characters(text)) {
      if (!IsPythonSpace(letter.value)) continue;
      if (!gaps.empty() && gaps.back().end == letter.begin) {
        gaps.back().end = letter.end;
      } else if (!add(letter.begin, letter.end)) {
        return TooManyParts();
      }
    }
    const auto trim_front = [&] {
      if (gaps.empty() || gaps.front().begin != 0) return;
      begin = gaps.front().end;
      gaps.erase(gaps.begin());
    };
    const auto trim_back = [&] {
      if (gaps.empty() || gaps.back().end != text.size()) return;
      end = gaps.back().begin;
      gaps.pop_back();
    };
    // When the number of splits is used up, white space at the far end stays.
    from_right ? trim_back() : trim_front();
    if (!gaps.empty() && gaps.size() - 1 < most) {
      from_right ? trim_front() : trim_back();
    }
    if (begin >= end) return List{};
  }
  if (gaps.size() > most) {
    if (from_right) {
      gaps.erase(gaps.begin(), gaps.end() - static_cast<int64_t>(most));
    } else {
      gaps.resize(most);
    }
  }
  List parts;
  for (const Gap& gap : gaps) {
    parts.emplace_back(text.substr(begin, gap.begin - begin));
    begin = gap.end;
  }
  parts.emplace_back(text.substr(begin, end - begin));
  return parts;
}

List SplitLines(const std::string& text, bool keep_ends) {
  List lines;
  size_t begin = 0;
  const std::vector<CodePoint> letters = Characters(text);
  for (size_t i = 0; i < letters.size(); ++i) {
    if (!EndsLine(letters[i].value)) continue;
    const size_t line_end = letters[i].begin;
    if (letters[i].value == '\r' && i + 1 < letters.size() &&
        letters[i + 1].value == '\n') {
      ++i;
    }
    const size_t end = letters[i].end;
    lines.emplace_back(
        text.substr(begin, (keep_ends ? end : line_end) - begin));
    begin = end;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

absl::StatusOr<std::string> ReplaceText(const std::string& text,
                                        const std::string& from,
                                        const std::string& to,
                                        int64_t count) {
  std::string replaced;
  const absl::Status too_long =
      absl::ResourceExhaustedError("replace builds too long a text");
  if (from.empty()) {
    size_t begin = 0;
    for (const CodePoint& letter : Characters(text)) {
      if (count-- <= 0) break;
      replaced += to;
      replaced.append(text, letter.begin, letter.end - letter.begin);
      begin = letter.end;
      if (replaced.size() > kMaxTextBytes) return too_long;
    }
    replaced.append(text, begin);
    if (begin == text.size() && count > 0) replaced += to;
    return replaced;
  }
  size_t start = 0;
  for (size_t found = FindText(text, from);
       found != std::string::npos && count > 0;
       found = FindText(text, from, start), --count) {
    replaced.append(text, start, found - start);
    replaced += to;
    start = found + from.size();
    if (replaced.size() > kMaxTextBytes) return too_long;
  }
  replaced.append(text, start);
  return replaced;
}

absl::StatusOr<std::string> Justify(const std::string& text,
                                    int64_t width,
                                    const std::string& fill,
                                    bool fills_left,
                                    bool fills_right) {
  const auto size = static_cast<int64_t>(Characters(text).size());
  const int64_t missing = width - size;
  if (missing <= 0) return text;
  if (missing > static_cast<int64_t>(kMaxTextBytes / fill.size())) {
    return absl::ResourceExhaustedError("a filled text would be too long");
  }
  int64_t left = 0;
  if (fills_left) left = missing;
  // As in Python, an odd missing character is on the left if the width is odd.
  if (fills_left && fills_right) left = missing / 2 + (missing & width & 1);
  std::string filled;
  for (int64_t i = 0; i < left; ++i) filled += fill;
  filled += text;
  for (int64_t i = left; i < missing; ++i) filled += fill;
  return filled;
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
  // The lower case of a letter depends on the letters before it.
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

std::string SwapCase(const std::string& text) {
  // The lower case of a sigma depends on the letters around it.
  const std::string lower = Recase(text, false);
  size_t lower_begin = 0;
  std::string swapped;
  for (const CodePoint& letter : Characters(text)) {
    const std::string bytes =
        text.substr(letter.begin, letter.end - letter.begin);
    const size_t lower_size = Recase(bytes, false).size();
    if (u_isUUppercase(letter.value) != 0) {
      swapped += lower.substr(lower_begin, lower_size);
    } else if (u_isULowercase(letter.value) != 0) {
      swapped += Recase(bytes, true);
    } else {
      swapped += bytes;
    }
    lower_begin += lower_size;
  }
  return swapped;
}

std::string FoldCase(const std::string& text) {
  std::string folded;
  icu::UnicodeString::fromUTF8(text).foldCase().toUTF8String(folded);
  return folded;
}

bool IsAlphanumeric(const std::string& text) {
  return AllOf(text, [](int32_t c) {
    return IsLetter(c) || NumericType(c) != U_NT_NONE;
  });
}

bool IsAlphabetic(const std::string& text) {
  return AllOf(text, [](int32_t c) { return IsLetter(c); });
}

bool IsAscii(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x80;
  });
}

bool IsDecimal(const std::string& text) {
  return AllOf(text, [](int32_t c) { return NumericType(c) == U_NT_DECIMAL; });
}

bool IsDigits(const std::string& text) {
  return AllOf(text, [](int32_t c) {
    return NumericType(c) == U_NT_DECIMAL || NumericType(c) == U_NT_DIGIT;
  });
}

bool IsNumeric(const std::string& text) {
  return AllOf(text, [](int32_t c) { return NumericType(c) != U_NT_NONE; });
}

bool IsBlank(const std::string& text) { return AllOf(text, IsPythonSpace); }

bool IsLowerCase(const std::string& text) { return HasOnlyCase(text, false); }

bool IsUpperCase(const std::string& text) { return HasOnlyCase(text, true); }

bool IsTitleCase(const std::string& text) {
  bool found = false;
  bool in_word = false;
  for (const CodePoint& c : Characters(text)) {
    const bool starts = u_isUUppercase(c.value) != 0 || IsTitleLetter(c.value);
    const bool goes_on = u_isULowercase(c.value) != 0;
    if ((starts && in_word) || (goes_on && !in_word)) return false;
    in_word = starts || goes_on;
    found |= in_word;
  }
  return found;
}

std::string AsciiDigits(const std::string& text) {
  std::string digits;
  for (const CodePoint& c :
       Characters(Strip(text, Value(), /*left=*/true, /*right=*/true))) {
    const int32_t digit = u_charDigitValue(c.value);
    AppendCharacter(static_cast<uint32_t>(digit >= 0 ? '0' + digit : c.value),
                    digits);
  }
  return digits;
}

void AppendCharacter(uint32_t c, std::string& text) {
  char bytes[U8_MAX_LENGTH];
  size_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, c);
  text.append(bytes, size);
}

}  // namespace dapd::jinja
