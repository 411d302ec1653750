#include "common/base/find_python.h"

#include <filesystem>
#include <system_error>

#include "common/base/this_program.h"

namespace dapd {

std::string FindPython(const std::string& given) {
  if (!given.empty()) return given;
  // <repository>/build/bin/dapd
  const std::filesystem::path self = ThisProgram();
  const auto environment =
      self.parent_path().parent_path().parent_path() / ".deps/venv/bin/python";
  std::error_code error;
  return !self.empty() && std::filesystem::exists(environment, error)
             ? environment.string()
             : "python3";
}

}  // namespace dapd
