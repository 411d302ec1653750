#include "common/base/thread_share.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

#include "common/base/control_group.h"
#include "common/base/files.h"

namespace dapd {
namespace {

int64_t CoresToRunOn() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    return CPU_COUNT(&cores);
  }
  return std::thread::hardware_concurrency();  // more cores than the set has
}

// Returns the cores that a group may use, by the microseconds of processor time
// in each period. A quota "max" (v2) or -1 (v1) is no limit.
int64_t CoresOfGroup(const ControlGroup& group, int64_t at_most) {
  double quota = 0;
  double period = 0;
  if (group.is_v1) {
    quota = static_cast<double>(
        ReadGroupNumber(group, "cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(
        ReadGroupNumber(group, "cpu.cfs_period_us").value_or(-1));
  } else {
    std::ifstream file(JoinPath(group.folder, "cpu.max"));
    if (!(file >> quota >> period)) return at_most;
  }
  if (quota <= 0 || period <= 0) return at_most;
  return static_cast<int64_t>(
      std::min(std::ceil(quota / period), static_cast<double>(at_most)));
}

int64_t ThreadsOfThisProcess() {
  if (const char* limit = std::getenv("OMP_NUM_THREADS"); limit != nullptr) {
    // A value "4,2" has the numbers of threads of nested loops, which we do not
    // have.
    const absl::string_view outermost =
        absl::string_view(limit).substr(0, absl::string_view(limit).find(','));
    int64_t threads = 0;
    if (absl::SimpleAtoi(outermost, &threads) && threads > 0) return threads;
  }
  return UsableCores();
}

}  // namespace

int64_t UsableCores(const std::string& root) {
  int64_t cores = CoresToRunOn();
  for (const ControlGroup& group : ControlGroups("cpu", root)) {
    cores = CoresOfGroup(group, cores);
  }
  return std::max<int64_t>(1, cores);
}

int64_t ThreadsOfEach(int64_t processes) {
  return std::max<int64_t>(1, ThreadsOfThisProcess() / processes);
}

}  // namespace dapd
