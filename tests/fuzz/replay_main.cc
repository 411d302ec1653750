// Runs a fuzz target over files and folders of inputs without libFuzzer:
// <target> PATH... Names on stderr an input that crashes or takes longer than
// 20 s.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"

namespace {

constexpr unsigned kSecondsPerInput = 20;
char current[4096] = "none";

void NameInput(int signal) {
  constexpr char kText[] = "\nended by a signal at the input ";
  (void)!::write(STDERR_FILENO, kText, sizeof(kText) - 1);
  (void)!::write(STDERR_FILENO, current, std::strlen(current));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

std::vector<std::string> Inputs(int count, char** paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> inputs;
  for (int i = 0; i < count; ++i) {
    if (!fs::is_directory(paths[i])) {
      inputs.emplace_back(paths[i]);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(paths[i])) {
      if (entry.is_regular_file()) inputs.push_back(entry.path());
    }
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

}  // namespace

int main(int argc, char** argv) {
  for (const int signal : {SIGABRT, SIGALRM, SIGBUS, SIGFPE, SIGSEGV}) {
    ::signal(signal, NameInput);
  }
  const std::vector<std::string> inputs = Inputs(argc - 1, argv + 1);
  for (const std::string& path : inputs) {
    std::snprintf(current, sizeof(current), "%s", path.c_str());
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    ::alarm(kSecondsPerInput);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()),
                           bytes.size());
  }
  std::printf("%zu inputs\n", inputs.size());
  return inputs.empty() ? 1 : 0;
}
