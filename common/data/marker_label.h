// A marker: a text whose share among answers is measured (evaluation.marker),
// such as one that only worked answers contain. How it is called where people
// read figures.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// `with " = "`: escaped as printable.h does, and of a long one the beginning.
std::string MarkerLabel(absl::string_view marker);

}  // namespace dapd
