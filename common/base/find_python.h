// The Python that helpers in that language run in.
#pragma once

#include <string>

namespace dapd {

// `given`, if it is not empty; else that of .deps/venv in the repository that
// the program was built in, or in the folder that a release was unpacked to, if
// it is there; else python3, wherever PATH has it.
std::string FindPython(const std::string& given);

}  // namespace dapd
