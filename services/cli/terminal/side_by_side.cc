#include "services/cli/terminal/side_by_side.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace dapd {
namespace {

constexpr absl::string_view kGap = " | ";

size_t ColumnsOf(char32_t character) {
  const auto c = static_cast<UChar32>(character);
  if ((U_GET_GC_MASK(c) & (U_GC_MN_MASK | U_GC_ME_MASK | U_GC_CF_MASK)) != 0) {
    return 0;
  }
  const int32_t width = u_getIntPropertyValue(c, UCHAR_EAST_ASIAN_WIDTH);
  return width == U_EA_WIDE || width == U_EA_FULLWIDTH ? 2 : 1;
}

// `line` must be well-formed UTF-8.
void WrapLine(absl::string_view line,
              size_t width,
              std::vector<std::string>* lines) {
  do {
    size_t end = 0;
    size_t columns = 0;
    size_t space = 0;  // the last that fits, behind the first character
    while (end < line.size()) {
      char32_t character = 0;
      const size_t length = DecodeCharacter(line.substr(end), &character);
      columns += ColumnsOf(character);
      if (columns > width) break;
      if (character == U' ') space = end;
      end += length;
    }
    size_t next = end;
    if (end < line.size()) {
      if (line[end] != ' ' && space > 0) end = space;
      next = line[end] == ' ' ? end + 1 : end;
    }
    lines->push_back(std::string(line.substr(0, end)));
    line.remove_prefix(next);
  } while (!line.empty());
}

}  // namespace

size_t TerminalColumns(absl::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    char32_t character = 0;
    const size_t length = DecodeCharacter(text, &character);
    columns += length == 0 ? 1 : ColumnsOf(character);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return columns;
}

std::vector<std::string> WrapText(absl::string_view text, size_t width) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    WrapLine(
        Printable(absl::StrReplaceAll(line, {{"\t", "    "}})), width, &lines);
  }
  return lines;
}

std::string SideBySide(absl::string_view left,
                       absl::string_view right,
                       size_t width) {
  const size_t column = (width - kGap.size()) / 2;
  std::vector<std::string> lefts = WrapText(left, column);
  std::vector<std::string> rights = WrapText(right, column);
  const size_t num_lines = std::max(lefts.size(), rights.size());
  lefts.resize(num_lines);
  rights.resize(num_lines);
  std::string text;
  for (size_t i = 0; i < num_lines; ++i) {
    std::string line =
        absl::StrCat(lefts[i],
                     std::string(column - TerminalColumns(lefts[i]), ' '),
                     kGap,
                     rights[i]);
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace dapd
