#include "common/base/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

#include "common/base/files.h"
#include "common/base/process_end.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/work_mark.h"

namespace dapd {
namespace {

constexpr size_t kTailLines = 12;
// A crash is told by its signal and the functions in which it happened.
constexpr size_t kReportLines = 20;
// A log may have gigabytes; this much of its end is read.
constexpr std::streamoff kTailBytes = 1 << 16;

// In the child, between fork and exec, with all signals blocked: only
// async-signal-safe calls.
[[noreturn]] void Become(char* const* arguments,
                         char* const* environment,
                         int output,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  // The parent's handlers would take a signal that is meant for the program.
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) {
    ::signal(number, SIG_DFL);
  }
  // The child writes to our terminal from the background, for which `stty
  // tostop` would stop it.
  ::signal(SIGTTOU, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (output >= 0) {
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
  }
  ::execve(arguments[0], arguments, environment);
  ::_exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) {
    pointers.push_back(const_cast<char*>(string.c_str()));
  }
  return pointers;
}

// Returns the position of the lines that say why the log ends. A crash report
// (crash_report.h) begins with the reason and ends with stack frames.
size_t BeginOfEnd(const std::vector<std::string>& lines) {
  const size_t last = lines.size() - std::min(lines.size(), kTailLines);
  if (lines.empty() || !absl::StrContains(lines.back(), ")[0x")) return last;
  size_t begin = lines.size();
  while (begin > 0 && !absl::StartsWith(lines[begin - 1], "*** ")) --begin;
  return begin == 0 ? last : std::min(begin - 1, last);
}

// Returns whether one of `settings` is for the variable of "NAME=value".
bool IsNamed(absl::string_view variable,
             const std::vector<std::string>& settings) {
  const absl::string_view name = variable.substr(0, variable.find('=') + 1);
  return std::ranges::any_of(settings, [name](const std::string& setting) {
    return absl::StartsWith(setting, name);
  });
}

}  // namespace

ChildProcess::ChildProcess(std::string name,
                           std::vector<std::string> command,
                           std::string log_path,
                           std::vector<std::string> environment)
    : name_(std::move(name)),
      command_(std::move(command)),
      log_path_(std::move(log_path)),
      environment_(std::move(environment)) {}

ChildProcess::~ChildProcess() { Stop(absl::Seconds(5)); }

void ChildProcess::MarkWorkIn(std::string path) {
  std::remove(path.c_str());
  environment_.push_back(WorkMarkSetting(path));
  work_mark_ = std::move(path);
}

bool ChildProcess::HasWorked() const {
  return !work_mark_.empty() && ReadWorkMark(work_mark_) > mark_at_start_;
}

absl::Status ChildProcess::Start() {
  if (!work_mark_.empty()) mark_at_start_ = ReadWorkMark(work_mark_);
  int log_file = -1;
  if (!log_path_.empty()) {
    log_file = ::open(
        log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_file < 0) return FileError("open the log", log_path_, errno);
  }
  const absl::Cleanup close_log = [log_file] {
    if (log_file >= 0) ::close(log_file);
  };
  int output = log_file;
  if (log_file < 0 && sink_ != nullptr) {
    ASSIGN_OR_RETURN(relay_, LineRelay::Start(sink_));
    output = relay_->writer();
  }
  std::vector<char*> arguments = Pointers(command_);
  arguments.push_back(nullptr);
  std::vector<char*> environment = Pointers(environment_);
  for (char** each = ::environ; *each != nullptr; ++each) {
    if (!IsNamed(*each, environment_)) environment.push_back(*each);
  }
  environment.push_back(nullptr);
  kills_at_start_ = CountMemoryKills();
  const pid_t parent = ::getpid();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) Become(arguments.data(), environment.data(), output, parent);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", name_, ": ", std::strerror(errno)));
  }
  if (relay_ != nullptr) relay_->CloseWriter();
  pid_ = pid;
  return absl::OkStatus();
}

int ChildProcess::Poll() {
  if (pid_ <= 0) return -1;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return -1;
  pid_ = -1;
  relay_ = nullptr;  // hands on what is left in the pipe
  who_killed_ = WhoKilled(kills_at_start_, CountMemoryKills());
  return WIFEXITED(status) ? WEXITSTATUS(status)
                           : CodeOfSignal(WTERMSIG(status));
}

std::string ChildProcess::HowItEnded(int code) const {
  return absl::StrCat(dapd::HowItEnded(code),
                      code == CodeOfSignal(SIGKILL) ? who_killed_ : "");
}

void ChildProcess::Signal(int signal_number) {
  if (pid_ > 0) ::kill(pid_, signal_number);
}

void ChildProcess::Stop(absl::Duration grace) {
  if (pid_ <= 0) return;
  Signal(SIGTERM);
  const absl::Time deadline = SteadyNow() + grace;
  while (pid_ > 0 && SteadyNow() < deadline) {
    if (Poll() >= 0) return;
    absl::SleepFor(absl::Milliseconds(20));
  }
  Signal(SIGKILL);
  while (pid_ > 0 && Poll() < 0) absl::SleepFor(absl::Milliseconds(5));
}

std::string ChildProcess::LogTail() const {
  std::ifstream file(log_path_, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff begin =
      std::max<std::streamoff>(0, file.tellg() - kTailBytes);
  file.seekg(begin);
  std::string cut;  // without its beginning
  if (begin > 0) std::getline(file, cut);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (lines.empty()) lines.push_back(cut);
  lines.erase(lines.begin(),
              lines.begin() + static_cast<int64_t>(BeginOfEnd(lines)));
  if (lines.size() > kReportLines) lines.resize(kReportLines);
  return absl::StrJoin(lines, "\n  ");
}

}  // namespace dapd
