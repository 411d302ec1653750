#include "common/base/error_output.h"

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/mutex.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

// Returns the number of bytes of one write. A file takes any line at once. A
// pipe or terminal takes more only if somebody reads; beyond PIPE_BUF bytes
// other writers may come in between anyway.
size_t BytesAtOnce(int descriptor) {
  struct stat info = {};
  const bool is_file = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  return is_file ? std::numeric_limits<size_t>::max() : PIPE_BUF;
}

// Writes all of `text`, or stops once the descriptor takes nothing at all.
// Calls `on_progress` whenever a part was taken.
void WriteWhole(int descriptor,
                absl::string_view text,
                const std::function<void()>& on_progress) {
  const size_t at_once = BytesAtOnce(descriptor);
  while (!text.empty()) {
    const ssize_t written =
        ::write(descriptor, text.data(), std::min(text.size(), at_once));
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
      on_progress();
    } else if (errno == EAGAIN) {
      // Another process that shares the pipe or terminal has made it
      // non-blocking.
      pollfd wait = {descriptor, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return;  // it has nowhere to be reported
    }
  }
}

}  // namespace

struct PatientOutput::State {
  State(int output, std::function<std::string(int64_t)> describe)
      : descriptor(output), describe_dropped(std::move(describe)) {}

  const int descriptor;
  const std::function<std::string(int64_t)> describe_dropped;

  Mutex mutex;
  CondVar changed;
  std::deque<std::string> lines ABSL_GUARDED_BY(mutex);  // the first in writing
  size_t bytes ABSL_GUARDED_BY(mutex) = 0;
  int64_t dropped ABSL_GUARDED_BY(mutex) = 0;  // behind those lines
  int64_t added ABSL_GUARDED_BY(mutex) = 0;    // since the start
  int64_t taken ABSL_GUARDED_BY(mutex) = 0;
  absl::Time progress ABSL_GUARDED_BY(mutex) =
      absl::InfinitePast();  // when something was last taken
  bool stalled ABSL_GUARDED_BY(mutex) = false;
  bool has_thread ABSL_GUARDED_BY(mutex) = false;
  bool ending ABSL_GUARDED_BY(mutex) = false;

  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return lines.empty() && dropped == 0;
  }

  // Adds the line that reports dropped lines.
  void TellDropped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (dropped == 0) return;
    lines.push_back(describe_dropped(std::exchange(dropped, 0)));
    bytes += lines.back().size();
    ++added;
  }

  // Returns false if no thread can be started.
  static bool RequireThread(const std::shared_ptr<State>& state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mutex) {
    if (state->has_thread) return true;
    // Other threads handle the signals.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([state] { state->Run(); }).detach();
      state->has_thread = true;
    } catch (const std::system_error& /*error*/) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return state->has_thread;
  }

  void Run() {
    MutexLock lock(&mutex);
    while (true) {
      while (Idle() && !ending) changed.Wait(&mutex);
      if (Idle()) return;
      if (lines.empty()) TellDropped();
      const std::string& line = lines.front();  // a deque grows around it
      mutex.Unlock();
      WriteWhole(descriptor, line, [this] {
        const MutexLock progressing(&mutex);
        progress = SteadyNow();
      });
      mutex.Lock();
      bytes -= lines.front().size();
      lines.pop_front();
      ++taken;
      if (Idle()) stalled = false;
      changed.NotifyAll();
    }
  }

  // Waits until `number` lines have been taken, or until none was taken for
  // kReaderPatience.
  void Await(int64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const absl::Time begin = SteadyNow();
    while (taken < number && !stalled) {
      const absl::Duration left =
          std::max(begin, progress) + kReaderPatience - SteadyNow();
      if (left <= absl::ZeroDuration()) {
        stalled = true;
        return;
      }
      changed.WaitFor(&mutex, left);
    }
  }
};

PatientOutput::PatientOutput(
    int descriptor, std::function<std::string(int64_t)> describe_dropped)
    : state_(std::make_shared<State>(descriptor, std::move(describe_dropped))) {
}

PatientOutput::~PatientOutput() {
  Flush();
  MutexLock lock(&state_->mutex);
  state_->ending = true;
  state_->changed.NotifyAll();
}

void PatientOutput::Write(std::string line) {
  MutexLock lock(&state_->mutex);
  if (!State::RequireThread(state_)) {
    WriteWhole(state_->descriptor, line, [] {});
    return;
  }
  // While somebody reads, each thread waits for its line, so there is room for
  // all lines. With a slow reader the dropped lines come in runs.
  const size_t limit =
      state_->dropped > 0 ? kMaxUnreadBytes / 2 : kMaxUnreadBytes;
  if (state_->stalled && state_->bytes + line.size() > limit) {
    ++state_->dropped;
    return;
  }
  state_->TellDropped();
  state_->bytes += line.size();
  state_->lines.push_back(std::move(line));
  const int64_t number = ++state_->added;
  state_->changed.NotifyAll();
  state_->Await(number);
}

void PatientOutput::Offer(std::string text) {
  {
    MutexLock lock(&state_->mutex);
    if (!state_->Idle()) return;
  }
  Write(std::move(text));
}

void PatientOutput::Flush() {
  MutexLock lock(&state_->mutex);
  const absl::Time begin = SteadyNow();
  state_->progress = begin;
  while (!state_->Idle() && state_->has_thread &&
         SteadyNow() - state_->progress < kEndPatience &&
         SteadyNow() - begin < kLongestEnd) {
    state_->changed.WaitFor(&state_->mutex, kEndPatience / 10);
  }
}

void PatientOutput::BeforeFork() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  state_->mutex.Lock();
}

void PatientOutput::AfterFork(bool is_child) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  state_->mutex.Unlock();
  if (!is_child) return;
  // The parent's thread writes the kept lines and waits for the condition. Both
  // are useless in the child and stay as they are.
  auto* parents = new std::shared_ptr<State>(std::move(state_));
  state_ = std::make_shared<State>((*parents)->descriptor,
                                   (*parents)->describe_dropped);
}

namespace {

std::string DescribePlainly(int64_t number) {
  return absl::StrCat(number, " lines are missing here\n");
}

std::atomic<std::string (*)(int64_t)> describe_dropped{DescribePlainly};

PatientOutput& ErrorOutput() {
  static PatientOutput& output = *[] {
    auto* made = new PatientOutput(STDERR_FILENO, [](int64_t number) {
      return describe_dropped.load()(number);
    });
    std::atexit(FlushErrorOutput);
    ::pthread_atfork([] { ErrorOutput().BeforeFork(); },
                     [] { ErrorOutput().AfterFork(/*is_child=*/false); },
                     [] { ErrorOutput().AfterFork(/*is_child=*/true); });
    return made;
  }();
  return output;
}

}  // namespace

void WriteErrorLine(std::string line) { ErrorOutput().Write(std::move(line)); }

void OfferErrorText(std::string text) { ErrorOutput().Offer(std::move(text)); }

void FlushErrorOutput() { ErrorOutput().Flush(); }

void DescribeDroppedLines(std::string (*describe)(int64_t)) {
  describe_dropped = describe;
}

}  // namespace dapd
