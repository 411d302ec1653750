// The output of `dapd --version`.
#pragma once

#include <string>

namespace dapd {

// Returns the version on a line by itself, for programs that read it; then the
// commit, the flavour and the kernels that would compute on this machine.
std::string VersionText();

}  // namespace dapd
