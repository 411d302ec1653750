#include "common/base/line_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/status_macros.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

// How soon a wait notices that it is given up, or that the child has ended
// while a process that it started holds its output.
constexpr int64_t kLookMilliseconds = 100;
constexpr size_t kBlockBytes = size_t{1} << 16;

// Runs in the child between fork and exec, so it may call only
// async-signal-safe functions.
[[noreturn]] void Become(char* const* arguments,
                         int socket,
                         int errors,
                         uint64_t memory_bytes,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  // Handlers do not outlive the execution of the program, but what is ignored
  // stays so.
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(socket, STDIN_FILENO);
  ::dup2(socket, STDOUT_FILENO);
  if (errors >= 0) ::dup2(errors, STDERR_FILENO);
  if (memory_bytes > 0) {
    const rlimit memory = {.rlim_cur = memory_bytes, .rlim_max = memory_bytes};
    const rlimit core = {.rlim_cur = 0, .rlim_max = 0};
    // A limit that cannot be set leaves the program without its work.
    if (::setrlimit(RLIMIT_AS, &memory) != 0) ::_exit(127);
    ::setrlimit(RLIMIT_CORE, &core);
  }
  ::execvp(arguments[0], arguments);
  ::_exit(127);
}

// Returns whether a child has ended, without reaping it; `info` says how.
bool HasExited(pid_t pid, siginfo_t* info) {
  *info = {};
  return ::waitid(P_PID,
                  static_cast<id_t>(pid),
                  info,
                  WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info->si_pid == pid;
}

}  // namespace

LineProcess::LineProcess(std::string name,
                         std::vector<std::string> command,
                         LineProcessOptions options)
    : name_(std::move(name)),
      command_(std::move(command)),
      options_(std::move(options)) {}

LineProcess::~LineProcess() { Kill(); }

absl::Status LineProcess::Start() {
  Kill();
  was_killed_ = false;
  if (options_.on_error_line != nullptr) {
    ASSIGN_OR_RETURN(errors_, LineRelay::Start(options_.on_error_line));
  }
  int ends[2] = {-1, -1};
  // A socket instead of a pipe, because writing to a closed socket need not
  // raise a signal.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", name_, ": ", std::strerror(errno)));
  }
  std::vector<char*> arguments;
  for (const std::string& argument : command_) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    Become(arguments.data(),
           ends[1],
           errors_ == nullptr ? -1 : errors_->writer(),
           options_.memory_bytes,
           parent);
  }
  const int error = errno;
  ::close(ends[1]);
  if (errors_ != nullptr) errors_->CloseWriter();
  if (pid < 0) {
    ::close(ends[0]);
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", name_, ": ", std::strerror(error)));
  }
  // The parent does this, too, so that Kill reaches the group however far the
  // child is.
  ::setpgid(pid, pid);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  pid_ = pid;
  socket_ = ends[0];
  buffer_.clear();
  return absl::OkStatus();
}

void LineProcess::Kill() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  errors_ = nullptr;  // hands on what is left in the pipe
}

absl::Status LineProcess::Ended() {
  if (pid_ <= 0) {
    return absl::UnavailableError(absl::StrCat(name_, " is not running"));
  }
  // The child closed its end and is useless even if it lives on. While it is
  // not reaped, nobody else gets its group's number.
  siginfo_t info = {};
  for (int i = 0; !HasExited(pid_, &info); ++i) {
    if (i == 99) {
      Kill();
      return absl::UnavailableError(absl::StrCat(name_, " closed its output"));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  const bool has_exited = info.si_code == CLD_EXITED;
  Kill();
  was_killed_ = !has_exited;
  return absl::UnavailableError(absl::StrCat(
      name_,
      has_exited ? " ended with exit code " : " was ended by signal ",
      info.si_status));
}

absl::Status LineProcess::Wait(short events, absl::Time deadline) {
  while (true) {
    const auto left = absl::ToInt64Milliseconds(deadline - SteadyNow() +
                                                absl::Milliseconds(1));
    if (left <= 0) {
      return absl::DeadlineExceededError(
          absl::StrCat(name_, " did not answer in time"));
    }
    if (options_.gives_up != nullptr && options_.gives_up()) {
      return absl::CancelledError(absl::StrCat(name_, " is no longer needed"));
    }
    pollfd descriptor = {.fd = socket_, .events = events, .revents = 0};
    const int ready = ::poll(
        &descriptor, 1, static_cast<int>(std::min(left, kLookMilliseconds)));
    if (ready > 0) return absl::OkStatus();
    siginfo_t info;
    if (ready == 0 && HasExited(pid_, &info)) return Ended();
    if (ready < 0 && errno != EINTR) {
      return absl::InternalError(
          absl::StrCat("poll failed: ", std::strerror(errno)));
    }
  }
}

absl::Status LineProcess::Write(absl::string_view line, absl::Time deadline) {
  if (!running()) return Ended();
  const std::string bytes = absl::StrCat(line, "\n");
  size_t sent = 0;
  while (sent < bytes.size()) {
    RETURN_IF_ERROR(Wait(POLLOUT, deadline));
    const ssize_t count =
        ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno != EAGAIN && errno != EINTR) {
      return Ended();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LineProcess::Read(absl::Time deadline) {
  if (!running()) return Ended();
  size_t searched = 0;
  while (true) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos && end <= options_.max_line_bytes) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    searched = buffer_.size();
    if (searched > options_.max_line_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name_,
                       " answered with a line of more than ",
                       options_.max_line_bytes,
                       " bytes"));
    }
    RETURN_IF_ERROR(Wait(POLLIN, deadline));
    buffer_.resize(searched + kBlockBytes);
    const ssize_t count =
        ::recv(socket_, buffer_.data() + searched, kBlockBytes, 0);
    buffer_.resize(searched + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
      return Ended();
    }
  }
}

}  // namespace dapd
