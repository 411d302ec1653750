#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/fuzz/input.h"

namespace dapd {

ScratchFolder::ScratchFolder() {
  std::error_code error;
  const std::string parent =
      std::filesystem::is_directory("/dev/shm", error)
          ? "/dev/shm"
          : std::filesystem::temp_directory_path().string();
  path_ = JoinPath(parent, "dapd-fuzz-XXXXXX");
  Check(::mkdtemp(path_.data()) != nullptr, "a scratch folder can be made");
}

ScratchFolder::~ScratchFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string ScratchFolder::Write(const std::string& name,
                                 absl::string_view bytes) const {
  const std::string path = JoinPath(path_, name);
  std::FILE* file = std::fopen(path.c_str(), "wb");
  Check(file != nullptr, "a scratch file can be created");
  const size_t written = std::fwrite(bytes.data(), 1, bytes.size(), file);
  Check(std::fclose(file) == 0 && written == bytes.size(),
        "a scratch file can be written");
  return path;
}

void ScratchFolder::Remove(const std::string& name) const {
  std::error_code error;
  std::filesystem::remove(JoinPath(path_, name), error);
}

}  // namespace dapd
