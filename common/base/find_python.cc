#include "common/base/find_python.h"

#include <filesystem>
#include <system_error>

namespace dapd {

std::string FindPython(const std::string& given) {
  if (!given.empty()) return given;
  // <repository>/build/bin/dapd
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto environment =
      self.parent_path().parent_path().parent_path() / ".deps/venv/bin/python";
  return !error && std::filesystem::exists(environment, error)
             ? environment.string()
             : "python3";
}

}  // namespace dapd
