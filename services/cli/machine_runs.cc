#include "services/cli/machine_runs.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

#include "common/base/files.h"
#include "common/config/load_config.h"
#include "common/config/validate_config.h"
#include "common/rpc/pool/address_resolver.h"

namespace dapd {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxNameBytes = 64;

// Returns the folders of runs whose lock the process holds, usually one.
std::vector<std::string> FoldersHeldBy(const fs::path& process) {
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::directory_iterator it(process / "fd", error), end;
       !error && it != end;
       it.increment(error)) {
    std::error_code unreadable;
    const std::string file = fs::read_symlink(it->path(), unreadable).string();
    absl::string_view folder = file;
    if (absl::ConsumeSuffix(&folder, "/.lock")) folders.emplace_back(folder);
  }
  return folders;
}

std::string AddressOf(const std::string& folder) {
  const auto config = LoadWrittenConfig(JoinPath(folder, "config.yaml"));
  if (!config.ok()) return "";
  const std::string& listen = config->config.trainer.listen;
  std::string host;
  int port = 0;
  return SplitAddress(listen, &host, &port) && port > 0 ? ReachableHere(listen)
                                                        : "";
}

}  // namespace

std::vector<MachineRun> RunsOfThisMachine(const std::string& proc) {
  std::vector<MachineRun> runs;
  std::error_code error;
  for (fs::directory_iterator it(proc, error), end; !error && it != end;
       it.increment(error)) {
    const auto name = ReadFile(it->path() / "comm", kMaxNameBytes);
    if (!name.ok() || absl::StripAsciiWhitespace(*name) != "dapd-trainer") {
      continue;
    }
    for (const std::string& folder : FoldersHeldBy(it->path())) {
      runs.push_back({folder, AddressOf(folder)});
    }
  }
  std::ranges::sort(runs, {}, &MachineRun::folder);
  return runs;
}

std::string ReachableHere(const std::string& listen) {
  std::string host;
  int port = 0;
  if (!SplitAddress(listen, &host, &port)) return listen;
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  return JoinHostPort(host, port);
}

}  // namespace dapd
