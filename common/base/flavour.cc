#include "common/base/flavour.h"

#include <filesystem>
#include <system_error>

#include "common/base/this_program.h"

namespace dapd {

std::string CudaLibraryPath() {
  const std::filesystem::path program = ThisProgram();
  const auto path =
      program.parent_path().parent_path() / "lib" / "libdapd_cuda.so";
  std::error_code error;
  return std::filesystem::exists(path, error) ? path.string() : "";
}

const char* Flavour() { return CudaLibraryPath().empty() ? "cpu" : "cuda"; }

}  // namespace dapd
