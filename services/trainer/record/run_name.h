// RunName derives the name of a run from its folder.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace dapd {

// Returns the folder's last name, also of "runs/a/" and "."; "" of "".
inline std::string RunName(const std::string& folder) {
  // Avoids the exception that the absolute path of "" throws.
  std::error_code error;
  const std::filesystem::path whole =
      std::filesystem::absolute(folder, error).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path())
      .filename()
      .string();
}

}  // namespace dapd
