// Lays out foreign text in a terminal: lines of a width, and two texts side by
// side.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// Returns the columns that well-formed text without control characters takes:
// wide East Asian characters two (Unicode UAX #11), combining marks none.
size_t TerminalColumns(absl::string_view text);

// Returns the lines of `text`, at least one, escaped by printable.h, with four
// spaces for a tab. Each takes at most `width` columns, at least 2; a longer
// line is broken at a space, or anywhere if there is none.
std::vector<std::string> WrapText(absl::string_view text, size_t width);

// Returns both texts side by side, wrapped to equally wide columns that
// together take at most `width`, at least 8; ends with a newline.
std::string SideBySide(absl::string_view left,
                       absl::string_view right,
                       size_t width);

}  // namespace dapd
