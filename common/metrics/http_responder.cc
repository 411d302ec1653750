#include "common/metrics/http_responder.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/base/listen_socket.h"
#include "common/base/status_macros.h"
#include "common/config/validate_config.h"
#include "common/metrics/http_transport.h"
#include "common/security/role.h"

namespace dapd {
namespace {

constexpr size_t kMaxConnections = 64;
constexpr int kPollMs = 100;
constexpr RoleSet kReaders = {Role::kViewer, Role::kTrainer, Role::kAdmin};

absl::StatusOr<ListenSocket> Listen(const std::string& address) {
  std::string host;
  int wanted_port = 0;
  if (!SplitAddress(address, &host, &wanted_port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is not host:port"));
  }
  auto socket = OpenListenSocket(host, wanted_port);
  if (socket.ok()) return socket;
  return absl::Status(socket.status().code(),
                      absl::StrCat("metrics: ",
                                   socket.status().message(),
                                   "; an empty address under metrics: in the "
                                   "configuration serves no metrics"));
}

constexpr size_t kMaxRequestBytes = 8192;
constexpr size_t kMaxDrainedBytes = 65536;
constexpr std::chrono::seconds kRequestTimeout(2);
constexpr std::chrono::seconds kAnswerTimeout(10);
constexpr std::chrono::seconds kDrainTimeout(1);
// A TLS record has this size: poll(2) does not see bytes of a record that were
// not read.
constexpr size_t kBlockBytes = 16384;

bool MustWait(ssize_t count) { return count == HttpTransport::kMustWait; }

// Serves one HTTP client from its request to the end of its answer, with limits
// on bytes and time: the request line and headers have at most 8 KiB and arrive
// within 2 s of the connection (including a TLS handshake); the answer is sent
// within 10 s. Not thread-safe.
class HttpConnection {
 public:
  // Returns the answer to a request; `roles` are granted by the client's
  // certificate.
  using Answer =
      std::function<std::string(const std::string& request, RoleSet roles)>;

  explicit HttpConnection(std::unique_ptr<HttpTransport> transport);

  pollfd ToPoll() const;
  // Reads or writes what is possible at once. Returns false when the connection
  // is over.
  bool Advance(const Answer& answer);
  bool IsOverdue() const;

 private:
  // The clock is monotonic: setting the system's clock must not end a
  // connection.
  using Clock = std::chrono::steady_clock;
  enum class State { kReading, kWriting, kDraining };

  bool Read(const Answer& answer);
  bool Write();
  bool Drain();
  void EnterState(State state, std::chrono::seconds timeout);

  const std::unique_ptr<HttpTransport> transport_;
  State state_ = State::kReading;
  std::string text_;  // the request, later the answer
  size_t done_ = 0;   // bytes written, or drained
  Clock::time_point deadline_;
};

HttpConnection::HttpConnection(std::unique_ptr<HttpTransport> transport)
    : transport_(std::move(transport)),
      deadline_(Clock::now() + kRequestTimeout) {}

pollfd HttpConnection::ToPoll() const {
  return {transport_->socket(),
          transport_->PollEvents(state_ == State::kWriting),
          0};
}

bool HttpConnection::Advance(const Answer& answer) {
  if (state_ == State::kReading && !Read(answer)) return false;
  if (state_ == State::kWriting && !Write()) return false;
  return state_ != State::kDraining || Drain();
}

bool HttpConnection::IsOverdue() const { return Clock::now() >= deadline_; }

bool HttpConnection::Read(const Answer& answer) {
  char block[kBlockBytes];
  const ssize_t count = transport_->Read(block, sizeof(block));
  if (count <= 0) return MustWait(count);
  text_.append(block, static_cast<size_t>(count));
  const size_t end = text_.find("\r\n\r\n");
  if (end == std::string::npos) return text_.size() <= kMaxRequestBytes;
  if (end > kMaxRequestBytes) return false;
  text_ = answer(text_, transport_->PeerRoles());
  EnterState(State::kWriting, kAnswerTimeout);
  return true;
}

bool HttpConnection::Write() {
  const ssize_t count =
      transport_->Write(text_.data() + done_, text_.size() - done_);
  if (count <= 0) return MustWait(count);
  done_ += static_cast<size_t>(count);
  if (done_ < text_.size()) return true;
  transport_->EndWriting();
  EnterState(State::kDraining, kDrainTimeout);
  return true;
}

// Closing with unread bytes, such as a refused body, would reset the
// connection, and the client might never see the answer.
bool HttpConnection::Drain() {
  char block[kBlockBytes];
  const ssize_t count = transport_->Read(block, sizeof(block));
  if (count <= 0) return MustWait(count);
  done_ += static_cast<size_t>(count);
  return done_ <= kMaxDrainedBytes;
}

void HttpConnection::EnterState(State state, std::chrono::seconds timeout) {
  state_ = state;
  done_ = 0;
  deadline_ = Clock::now() + timeout;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpResponder>> HttpResponder::Start(
    HttpOptions options, std::map<std::string, HttpPage> pages) {
  if (options.security == nullptr) options.security = Security::Loopback();
  ASSIGN_OR_RETURN(const Protection protection,
                   options.security->ForHttp(options.listen));
  std::optional<TlsServer> tls;
  if (protection == Protection::kTls) {
    ASSIGN_OR_RETURN(tls, TlsServer::Create(options.security->identity()));
  }
  ASSIGN_OR_RETURN(const auto bound, Listen(options.listen));
  return std::unique_ptr<HttpResponder>(new HttpResponder(bound.descriptor,
                                                          bound.port,
                                                          std::move(tls),
                                                          std::move(options),
                                                          std::move(pages)));
}

HttpResponder::HttpResponder(int listener,
                             int port,
                             std::optional<TlsServer> tls,
                             HttpOptions options,
                             std::map<std::string, HttpPage> pages)
    : listener_(listener),
      port_(port),
      tls_(std::move(tls)),
      options_(std::move(options)),
      pages_(std::move(pages)),
      thread_([this] { Serve(); }) {}

HttpResponder::~HttpResponder() {
  stopping_ = true;
  thread_.join();
  ::close(listener_);
}

std::string HttpResponder::Answer(const std::string& request,
                                  RoleSet certificate_roles) const {
  // Every page may be read in plain text: Security::ForHttp allows plain text
  // only on loopback, or if a flag permits it.
  if (!tls_.has_value()) {
    return AnswerHttp(request, pages_, options_.allowed_hosts);
  }
  return AnswerHttp(
      request,
      pages_,
      options_.allowed_hosts,
      [&](absl::string_view authorization) {
        RoleSet roles = certificate_roles;
        if (!authorization.empty() && options_.security->accepts_tokens()) {
          const RoleSet granted =
              options_.security->RolesOfToken(ParseBearer(authorization));
          if (granted.empty()) return HttpAccess::kUnknown;
          roles.Add(granted);
        }
        if (roles.empty()) return HttpAccess::kUnknown;
        return roles.Intersects(kReaders) ? HttpAccess::kAllowed
                                          : HttpAccess::kForbidden;
      });
}

void HttpResponder::Serve() {
  // OpenSSL writes with write(2); SIGPIPE would end the process after a client
  // has gone.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  const auto answer = [this](const std::string& request, RoleSet roles) {
    return Answer(request, roles);
  };
  std::list<HttpConnection> connections;  // the oldest first
  while (!stopping_) {
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
    for (const HttpConnection& connection : connections) {
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
        // There may be no descriptors left, and the next attempt would fail as
        // fast.
        if (errno != EAGAIN && errno != EINTR) ::poll(nullptr, 0, kPollMs);
        break;
      }
      if (connections.size() == kMaxConnections) connections.pop_front();
      connections.emplace_back(
          HttpTransport::Accept(accepted, tls_.has_value() ? &*tls_ : nullptr));
      // Earlier clients must not wait for a flood of new ones to end.
      if (connections.size() == kMaxConnections) break;
    }
  }
}

}  // namespace dapd
