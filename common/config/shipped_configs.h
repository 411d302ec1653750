// The configurations that an installation brings, which a user names without
// having to know where they lie: `dapd run laboratory`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/command_line.h"

namespace dapd {

// The folder that has them: configs/ of the release, of the Python package or
// of the repository that the program belongs to. Empty if it is not there.
std::string ShippedConfigsFolder();

// The names of the configurations right in `folder`, in order: "laboratory" for
// laboratory.yaml. Empty if the folder cannot be read.
std::vector<std::string> ConfigNames(const std::string& folder);

// The file that a user means by `given`: a file of that path; or, where there
// is none and `given` is a bare name, without slash and dot, the configuration
// of that name in `folder`. Any other path as it is: whoever reads it says what
// is wrong. An error with exit code kConfig, which lists the names, for a bare
// name that means neither.
absl::StatusOr<std::string> FindConfig(const std::string& given,
                                       const std::string& folder);

// The argument by which a command is given such a configuration; `config`,
// which LoadConfig reads, must outlive the command line.
void AddConfigArgument(Command& command, std::string& config);

}  // namespace dapd
