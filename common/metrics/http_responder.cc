#include "common/metrics/http_responder.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace dapd {
namespace {

// Monotonic: a clock that is set must not cut anybody off.
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxConnections = 64;
constexpr size_t kMaxRequestBytes = 8192;
constexpr size_t kMaxDrainedBytes = 65536;
constexpr std::chrono::seconds kRequestTimeout(2);
constexpr std::chrono::seconds kAnswerTimeout(10);
constexpr std::chrono::seconds kDrainTimeout(1);
constexpr int kPollMs = 100;
constexpr int kBacklog = 64;

absl::StatusOr<std::pair<int, int>> Listen(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is not host:port"));
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.substr(0, colon).c_str(),
                                  address.substr(colon + 1).c_str(),
                                  &hints,
                                  &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on ", address, ": ", ::gai_strerror(error)));
  }
  const absl::Cleanup free_found = [found] { ::freeaddrinfo(found); };
  const int listener =
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (listener < 0 ||
      ::bind(listener, found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener, kBacklog) != 0) {
    const int reason = errno;
    if (listener >= 0) ::close(listener);
    return absl::UnavailableError(absl::StrCat(
        "cannot serve metrics on ",
        address,
        ": ",
        std::strerror(reason),
        "; choose another port under metrics: in the configuration, or leave "
        "it empty for none"));
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size);
  char port[16] = {};
  ::getnameinfo(reinterpret_cast<sockaddr*>(&bound),
                size,
                nullptr,
                0,
                port,
                sizeof(port),
                NI_NUMERICSERV);
  return std::pair(listener, std::stoi(port));
}

// One client, from its request to the end of its answer.
class Connection {
 public:
  explicit Connection(int descriptor)
      : descriptor_(descriptor), deadline_(Clock::now() + kRequestTimeout) {}
  ~Connection() { ::close(descriptor_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  pollfd ToPoll() const {
    const short events = state_ == State::kWriting ? POLLOUT : POLLIN;
    return {descriptor_, events, 0};
  }

  // Reads or writes what is possible at once. False when it is over.
  template <typename Answer>
  bool Advance(const Answer& answer) {
    if (state_ == State::kReading && !Read(answer)) return false;
    if (state_ == State::kWriting && !Write()) return false;
    return state_ != State::kDraining || Drain();
  }

  bool IsOverdue() const { return Clock::now() >= deadline_; }

 private:
  enum class State { kReading, kWriting, kDraining };

  // The error of a call that only has to wait.
  static bool MustWait(ssize_t count) {
    return count < 0 && (errno == EAGAIN || errno == EINTR);
  }

  template <typename Answer>
  bool Read(const Answer& answer) {
    char block[1024];
    const ssize_t count = ::recv(descriptor_, block, sizeof(block), 0);
    if (count <= 0) return MustWait(count);
    text_.append(block, static_cast<size_t>(count));
    if (text_.size() > kMaxRequestBytes) return false;
    if (text_.find("\r\n\r\n") == std::string::npos) return true;
    text_ = answer(text_);
    EnterState(State::kWriting, kAnswerTimeout);
    return true;
  }

  bool Write() {
    const ssize_t count = ::send(
        descriptor_, text_.data() + done_, text_.size() - done_, MSG_NOSIGNAL);
    if (count <= 0) return MustWait(count);
    done_ += static_cast<size_t>(count);
    if (done_ < text_.size()) return true;
    ::shutdown(descriptor_, SHUT_WR);
    EnterState(State::kDraining, kDrainTimeout);
    return true;
  }

  // To close on unread bytes, such as a refused body, would reset the
  // connection, and the client might never see the answer.
  bool Drain() {
    char block[4096];
    const ssize_t count = ::recv(descriptor_, block, sizeof(block), 0);
    if (count <= 0) return MustWait(count);
    done_ += static_cast<size_t>(count);
    return done_ <= kMaxDrainedBytes;
  }

  void EnterState(State state, std::chrono::seconds timeout) {
    state_ = state;
    done_ = 0;
    deadline_ = Clock::now() + timeout;
  }

  const int descriptor_;
  State state_ = State::kReading;
  std::string text_;  // the request, then the answer
  size_t done_ = 0;   // bytes written, or drained
  Clock::time_point deadline_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpResponder>> HttpResponder::Start(
    HttpOptions options, std::map<std::string, HttpPage> pages) {
  ASSIGN_OR_RETURN(const auto bound, Listen(options.listen));
  return std::unique_ptr<HttpResponder>(new HttpResponder(
      bound.first, bound.second, std::move(options), std::move(pages)));
}

HttpResponder::HttpResponder(int listener,
                             int port,
                             HttpOptions options,
                             std::map<std::string, HttpPage> pages)
    : listener_(listener),
      port_(port),
      options_(std::move(options)),
      pages_(std::move(pages)),
      thread_([this] { Serve(); }) {}

HttpResponder::~HttpResponder() {
  stopping_ = true;
  thread_.join();
  ::close(listener_);
}

void HttpResponder::Serve() {
  const auto answer = [this](const std::string& request) {
    return AnswerHttp(request, pages_, options_.allowed_hosts);
  };
  std::list<Connection> connections;  // the oldest first
  while (!stopping_) {
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
    for (const Connection& connection : connections) {
      polled.push_back(connection.ToPoll());
    }
    if (::poll(polled.data(), polled.size(), kPollMs) < 0) continue;
    size_t i = 1;
    for (auto it = connections.begin(); it != connections.end(); ++i) {
      const bool over =
          it->IsOverdue() || (polled[i].revents != 0 && !it->Advance(answer));
      it = over ? connections.erase(it) : std::next(it);
    }
    while (polled[0].revents != 0) {
      const int accepted =
          ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (accepted < 0) {
        // Out of descriptors, say: the next attempt would fail as fast.
        if (errno != EAGAIN && errno != EINTR) ::poll(nullptr, 0, kPollMs);
        break;
      }
      if (connections.size() == kMaxConnections) connections.pop_front();
      connections.emplace_back(accepted);
      // Those who came before must not wait for a flood to end.
      if (connections.size() == kMaxConnections) break;
    }
  }
}

}  // namespace dapd
