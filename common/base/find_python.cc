#include "common/base/find_python.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "common/base/this_program.h"

namespace dapd {
namespace {

// That folder is the empty text.
constexpr char kLeaveOutWorkingFolder[] =
    "import sys; sys.path[:] = [folder for folder in sys.path if folder]\n";

}  // namespace

std::string FindPython(const std::string& given) {
  if (!given.empty()) return given;
  // <release>/bin/dapd, <repository>/build/bin/dapd
  const auto release =
      std::filesystem::path(ThisProgram()).parent_path().parent_path();
  for (const auto& folder : {release, release.parent_path()}) {
    const auto python = folder / ".deps/venv/bin/python";
    std::error_code error;
    if (!folder.empty() && std::filesystem::exists(python, error)) {
      return python.string();
    }
  }
  return "python3";
}

std::vector<std::string> PythonCommand(const std::string& given,
                                       absl::string_view program) {
  return {
      FindPython(given), "-c", absl::StrCat(kLeaveOutWorkingFolder, program)};
}

}  // namespace dapd
