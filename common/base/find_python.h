// The Python that helpers in that language run in.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// `given`, if it is not empty; else that of .deps/venv in the repository that
// the program was built in, or in the folder that a release was unpacked to, if
// it is there; else python3, wherever PATH has it.
std::string FindPython(const std::string& given);

// The command that gives `program` to that Python as it stands. No module is
// taken from the folder that it is started in, where Python looks first: that
// may be anybody's, a model's that was downloaded, say.
std::vector<std::string> PythonCommand(const std::string& given,
                                       absl::string_view program);

}  // namespace dapd
