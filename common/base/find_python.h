// The Python interpreter that runs our helper programs.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// Returns `given` if it is not empty. Otherwise returns the interpreter of
// .deps/venv in the repository in which the program was built, or in the folder
// of the release; without such a folder, python3, which is looked up in PATH.
std::string FindPython(const std::string& given);

// Returns the command that runs the source text `program` with that
// interpreter. No module is imported from the working directory, where Python
// looks first: that folder may belong to somebody else, for example a
// downloaded model.
std::vector<std::string> PythonCommand(const std::string& given,
                                       absl::string_view program);

}  // namespace dapd
