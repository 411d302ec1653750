// Checks names that come from a file or another machine and become the name of
// a file here. They must not lead to another folder.
#pragma once

#include "absl/strings/string_view.h"

namespace dapd {

// Returns true for 1 to 128 characters of A-Z a-z 0-9 . _ - that do not begin
// with . or -. Such a name names a file directly in a folder, on every file
// system and in every shell.
bool IsSafeName(absl::string_view name);

}  // namespace dapd
