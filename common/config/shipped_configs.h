// The configurations of an installation, which a user can name without a path:
// `dapd run laboratory`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/command_line.h"

namespace dapd {

// Returns the folder configs/ of the release, the Python package or the
// repository to which the program belongs; empty if there is none.
std::string ShippedConfigsFolder();

// Returns the names of the configurations directly in `folder`, sorted:
// "laboratory" for laboratory.yaml; empty if the folder cannot be read.
std::vector<std::string> ConfigNames(const std::string& folder);

// Returns the file that a user means by `given`: the file at that path or, if
// there is none and `given` is a bare name without slash and dot, the
// configuration of that name in `folder`. Any other path is returned unchanged,
// so that reading it reports the error. A bare name that means neither is an
// error with exit code kConfig that lists the known names.
absl::StatusOr<std::string> FindConfig(const std::string& given,
                                       const std::string& folder);

// Adds the argument that names such a configuration. `config`, which LoadConfig
// reads, must outlive the command line.
void AddConfigArgument(Command& command, std::string& config);

}  // namespace dapd
