#include "common/base/line_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
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

constexpr size_t kMaxLineBytes = size_t{128} << 20;
constexpr size_t kBlockBytes = size_t{1} << 16;

// Runs in the child between fork and exec, so it may call only
// async-signal-safe functions.
[[noreturn]] void Become(char* const* arguments, int socket, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(socket, STDIN_FILENO);
  ::dup2(socket, STDOUT_FILENO);
  ::execvp(arguments[0], arguments);
  ::_exit(127);
}

}  // namespace

LineProcess::LineProcess(std::string name, std::vector<std::string> command)
    : name_(std::move(name)), command_(std::move(command)) {}

LineProcess::~LineProcess() { Kill(); }

absl::Status LineProcess::Start() {
  Kill();
  was_killed_ = false;
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
  if (pid == 0) Become(arguments.data(), ends[1], parent);
  const int error = errno;
  ::close(ends[1]);
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
}

absl::Status LineProcess::Ended() {
  if (pid_ <= 0) {
    return absl::UnavailableError(absl::StrCat(name_, " is not running"));
  }
  // The child closed its end and is useless even if it lives on.
  int status = 0;
  for (int i = 0; i < 100 && ::waitpid(pid_, &status, WNOHANG) != pid_; ++i) {
    if (i == 99) {
      Kill();
      return absl::UnavailableError(absl::StrCat(name_, " closed its output"));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  pid_ = -1;
  Kill();
  was_killed_ = WIFSIGNALED(status);
  return absl::UnavailableError(
      WIFEXITED(status)
          ? absl::StrCat(name_, " ended with exit code ", WEXITSTATUS(status))
          : absl::StrCat(name_, " was ended by signal ", WTERMSIG(status)));
}

absl::Status LineProcess::Wait(short events, absl::Time deadline) {
  while (true) {
    const auto left = absl::ToInt64Milliseconds(deadline - SteadyNow() +
                                                absl::Milliseconds(1));
    if (left <= 0) {
      return absl::DeadlineExceededError(
          absl::StrCat(name_, " did not answer in time"));
    }
    pollfd descriptor = {.fd = socket_, .events = events, .revents = 0};
    const int ready = ::poll(
        &descriptor, 1, static_cast<int>(std::min<int64_t>(left, 60000)));
    if (ready > 0) return absl::OkStatus();
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
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    searched = buffer_.size();
    if (searched > kMaxLineBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name_, " answered with a line that does not end"));
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
