#include "common/metrics/http_responder.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <list>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "common/base/listen_socket.h"
#include "common/base/status_macros.h"
#include "common/config/validate_config.h"
#include "common/metrics/http_connection.h"
#include "common/metrics/http_transport.h"

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
