#include "common/base/process_limits.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"

#include "common/base/control_group.h"
#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/list_folder.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

// Returns the number of threads of this user that count for "ulimit -u".
int64_t ThreadsOfThisUser(const std::string& root) {
  const std::string all = JoinPath(root, "proc");
  const auto names = ListFolder(all);
  if (!names.ok()) return 0;
  int64_t threads = 0;
  for (const std::string& name : *names) {
    const std::string folder = JoinPath(all, name);
    struct stat info = {};
    if (name.find_first_not_of("0123456789") != std::string::npos ||
        ::stat(folder.c_str(), &info) != 0 || info.st_uid != ::getuid()) {
      continue;
    }
    std::ifstream status(JoinPath(folder, "status"));
    std::string line;
    while (std::getline(status, line)) {
      if (line.starts_with("Threads:")) {
        threads += std::max<int64_t>(1, std::atoll(line.c_str() + 8));
      }
    }
  }
  return threads;
}

absl::Status TooFew(const std::string& things,
                    int64_t needed,
                    int64_t left,
                    const std::string& limit) {
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat("too few ",
                                                 things,
                                                 ": about ",
                                                 needed,
                                                 " are needed, and ",
                                                 std::max<int64_t>(0, left),
                                                 " are left; ",
                                                 limit)),
      ExitCode::kConfig);
}

absl::Status CheckGroupLimits(int64_t threads, const std::string& root) {
  for (const ControlGroup& group : ControlGroups("pids", root)) {
    const auto limit = ReadGroupNumber(group, "pids.max");
    if (!limit.has_value()) continue;
    const int64_t left =
        *limit - ReadGroupNumber(group, "pids.current").value_or(0);
    if (left >= threads) continue;
    return TooFew(
        "threads",
        threads,
        left,
        absl::StrCat(JoinPath(group.folder, "pids.max"),
                     " is ",
                     *limit,
                     ": raise it (docker run --pids-limit, "
                     "Kubernetes' podPidsLimit, systemd's TasksMax)"));
  }
  return absl::OkStatus();
}

absl::Status CheckUserLimit(int64_t threads, const std::string& root) {
  rlimit limit = {};
  if (::geteuid() == 0 || ::getrlimit(RLIMIT_NPROC, &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return absl::OkStatus();
  }
  const auto allowed = static_cast<int64_t>(limit.rlim_cur);
  const int64_t left = allowed - ThreadsOfThisUser(root);
  if (left >= threads) return absl::OkStatus();
  return TooFew("threads",
                threads,
                left,
                absl::StrCat("this user may have ",
                             allowed,
                             " in all its processes (ulimit -u): raise it"));
}

}  // namespace

absl::Status CheckProcessLimits(const ProcessNeeds& needs,
                                const std::string& root) {
  RETURN_IF_ERROR(CheckGroupLimits(needs.threads, root));
  RETURN_IF_ERROR(CheckUserLimit(needs.threads, root));
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
      limit.rlim_max != RLIM_INFINITY &&
      static_cast<int64_t>(limit.rlim_max) < needs.files) {
    return TooFew("open files",
                  needs.files,
                  static_cast<int64_t>(limit.rlim_max),
                  "a process may have no more (ulimit -Hn): raise it");
  }
  return absl::OkStatus();
}

std::string TooFewThreads() {
  return "too few threads: the system refuses to start another one; raise what "
         "bounds them (pids.max of the control group, as docker run "
         "--pids-limit sets it, or ulimit -u), or lower run.num_threads";
}

}  // namespace dapd
