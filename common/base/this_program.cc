#include "common/base/this_program.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/str_replace.h"

namespace dapd {
namespace {

// Returns the file from which `address` is mapped, by /proc/self/maps.
std::string MappedFile(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0;
    uint64_t end = 0;
    // begin-end rights offset device inode path
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &begin, &end) != 2 ||
        address < begin || address >= end) {
      continue;
    }
    const size_t path = line.find('/');
    return path == std::string::npos
               ? ""
               : absl::StrReplaceAll(line.substr(path), {{"\\012", "\n"}});
  }
  return "";
}

}  // namespace

std::string LauncherOf(const std::string& program) {
  const std::filesystem::path path(program);
  const std::filesystem::path folder = path.parent_path();
  if (folder.filename() != "libexec") return program;
  const auto launcher = folder.parent_path() / "bin" / path.filename();
  std::error_code error;
  return std::filesystem::exists(launcher, error) ? launcher.string() : program;
}

std::string ThisProgram() {
  return LauncherOf(MappedFile(reinterpret_cast<uintptr_t>(&ThisProgram)));
}

void NameThisProcess() {
  const std::string name =
      std::filesystem::path(ThisProgram()).filename().string();
  if (!name.empty()) ::prctl(PR_SET_NAME, name.c_str());
}

void OpenStandardStreams() {
  // Each open takes the lowest free descriptor.
  int opened = ::open("/dev/null", O_RDWR);
  while (opened >= 0 && opened <= STDERR_FILENO) {
    opened = ::open("/dev/null", O_RDWR);
  }
  if (opened >= 0) ::close(opened);
}

}  // namespace dapd
