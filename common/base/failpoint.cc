#include "common/base/failpoint.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/files.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"

namespace dapd {
namespace {

struct Action {
  std::string kind;      // "kill", "stop", "sleep", "hold", "error"
  int64_t argument = 0;  // sleep: ms; error: how many hits, 0: all
  std::string path;      // hold: the file
  int64_t at_hit = 0;    // 0: every hit
  int64_t hits = 0;
};

[[noreturn]] void RefuseText(const std::string& text) {
  std::fprintf(
      stderr, "DAPD_FAILPOINTS: cannot read '%s'\n", Printable(text).c_str());
  std::_Exit(2);
}

// Refuses 0 and less, too, because such a hit or time could never happen.
int64_t ParseCount(const std::string& count, const std::string& text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(count, &value) || value <= 0) RefuseText(text);
  return value;
}

// Parses "kill@3" or "sleep:250".
Action ParseAction(const std::string& text) {
  Action action;
  const std::vector<std::string> at = absl::StrSplit(text, '@');
  const std::vector<std::string> parts = absl::StrSplit(at[0], ':');
  action.kind = parts[0];
  const bool once = action.kind == "kill" || action.kind == "stop";
  const bool lasts = action.kind == "sleep" || action.kind == "hold";
  if (!once && !lasts && action.kind != "error") RefuseText(text);
  if (at.size() > 2 || parts.size() > 2) RefuseText(text);
  const bool has_argument = parts.size() == 2;
  if ((once && has_argument) || (lasts && !has_argument)) RefuseText(text);
  if (action.kind == "hold") {
    if (parts[1].empty()) RefuseText(text);
    action.path = parts[1];
  } else if (has_argument) {
    action.argument = ParseCount(parts[1], text);
  }
  if (at.size() == 2) {
    action.at_hit = ParseCount(at[1], text);
  } else if (once) {
    action.at_hit = 1;
  }
  return action;
}

std::map<std::string, Action> ParseEnvironment() {
  std::map<std::string, Action> actions;
  const char* text = std::getenv("DAPD_FAILPOINTS");
  if (text == nullptr) return actions;
  for (const auto entry : absl::StrSplit(text, ';', absl::SkipEmpty())) {
    const std::vector<std::string> sides = absl::StrSplit(entry, '=');
    if (sides.size() != 2 || sides[0].empty()) RefuseText(std::string(entry));
    // A second action of a name would replace its first action.
    const bool is_new = actions.emplace(sides[0], ParseAction(sides[1])).second;
    if (!is_new) RefuseText(std::string(entry));
  }
  return actions;
}

struct Armed {
  Mutex mutex;
  std::map<std::string, Action> actions ABSL_GUARDED_BY(mutex) =
      ParseEnvironment();
};

}  // namespace

absl::Status HitFailpoint(const char* name) {
  static auto* armed = new Armed;  // outlives every thread
  Action action;
  {
    MutexLock lock(&armed->mutex);
    const auto found = armed->actions.find(name);
    if (found == armed->actions.end()) return absl::OkStatus();
    ++found->second.hits;
    action = found->second;
  }
  if (action.at_hit != 0 && action.hits != action.at_hit) {
    return absl::OkStatus();
  }
  if (action.kind == "kill") ::kill(::getpid(), SIGKILL);
  if (action.kind == "stop") ::kill(::getpid(), SIGSTOP);
  if (action.kind == "sleep")
    absl::SleepFor(absl::Milliseconds(action.argument));
  while (action.kind == "hold" && ::access(action.path.c_str(), F_OK) == 0) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  if (action.kind == "error" &&
      (action.argument == 0 || action.hits <= action.argument)) {
    return FileError("write at failpoint", name, ENOSPC);
  }
  return absl::OkStatus();
}

}  // namespace dapd
