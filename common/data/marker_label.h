// Formats the label of a marker for people who read figures. A marker is a text
// whose share among answers is measured (evaluation.marker), for example a text
// that only worked answers contain.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// Returns `with " = "`, escaped as printable.h does; a long marker is cut at
// its end.
std::string MarkerLabel(absl::string_view marker);

}  // namespace dapd
