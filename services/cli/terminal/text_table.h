// Tables in a terminal.
#pragma once

#include <string>
#include <vector>

namespace dapd {

using Cells = std::vector<std::string>;

// Returns a line for each row, without its end: columns as wide as their widest
// cell (TerminalColumns), two spaces apart. Rows may have fewer cells than
// others.
std::vector<std::string> AlignColumns(const std::vector<Cells>& rows);

}  // namespace dapd
