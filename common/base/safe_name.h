// Names that come from a file or another machine and become the name of a file
// here. They must not lead anywhere else.
#pragma once

#include "absl/strings/string_view.h"

namespace dapd {

// True for 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with . or -. Such a
// name joined to a folder is a file right in it, on every file system and in
// every shell.
bool IsSafeName(absl::string_view name);

}  // namespace dapd
