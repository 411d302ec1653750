#include "services/cli/terminal/text_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "services/cli/terminal/side_by_side.h"

namespace dapd {

std::vector<std::string> AlignColumns(const std::vector<Cells>& rows) {
  std::vector<size_t> widths;
  for (const Cells& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], TerminalColumns(row[i]));
    }
  }
  std::vector<std::string> lines;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(
          &line,
          row[i],
          std::string(widths[i] - TerminalColumns(row[i]) + 2, ' '));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace dapd
