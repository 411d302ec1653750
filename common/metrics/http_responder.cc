#include "common/metrics/http_responder.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr size_t kMaxRequestBytes = 8192;
constexpr absl::Duration kRequestTimeout = absl::Seconds(2);
constexpr int kPollMs = 100;
constexpr int kBacklog = 16;

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
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
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

std::string Response(const char* status,
                     const std::string& content_type,
                     const std::string& body,
                     bool head_only) {
  return absl::StrCat("HTTP/1.1 ",
                      status,
                      "\r\nContent-Type: ",
                      content_type,
                      "\r\nContent-Length: ",
                      body.size(),
                      "\r\nConnection: close\r\n\r\n",
                      head_only ? "" : body);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpResponder>> HttpResponder::Start(
    const std::string& listen, std::map<std::string, HttpPage> pages) {
  ASSIGN_OR_RETURN(const auto bound, Listen(listen));
  return std::unique_ptr<HttpResponder>(
      new HttpResponder(bound.first, bound.second, std::move(pages)));
}

HttpResponder::HttpResponder(int listener,
                             int port,
                             std::map<std::string, HttpPage> pages)
    : listener_(listener),
      port_(port),
      pages_(std::move(pages)),
      thread_([this] { Serve(); }) {}

HttpResponder::~HttpResponder() {
  stopping_ = true;
  thread_.join();
  ::close(listener_);
}

void HttpResponder::Serve() {
  while (!stopping_) {
    pollfd waiting = {listener_, POLLIN, 0};
    if (::poll(&waiting, 1, kPollMs) <= 0) continue;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    Answer(connection);
    ::close(connection);
  }
}

void HttpResponder::Answer(int connection) {
  std::string request;
  const absl::Time deadline = absl::Now() + kRequestTimeout;
  while (request.find("\r\n\r\n") == std::string::npos) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration() || stopping_) return;
    pollfd waiting = {connection, POLLIN, 0};
    if (::poll(&waiting, 1, kPollMs) <= 0) continue;
    char block[1024];
    const ssize_t count = ::recv(connection, block, sizeof(block), 0);
    if (count <= 0) return;
    request.append(block, static_cast<size_t>(count));
    if (request.size() > kMaxRequestBytes) return;
  }
  std::string response = Respond(request);
  timeval patience = {2, 0};
  ::setsockopt(
      connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  for (size_t sent = 0; sent < response.size();) {
    const ssize_t count = ::send(connection,
                                 response.data() + sent,
                                 response.size() - sent,
                                 MSG_NOSIGNAL);
    if (count <= 0) return;
    sent += static_cast<size_t>(count);
  }
}

std::string HttpResponder::Respond(const std::string& request) const {
  const std::string line = request.substr(0, request.find("\r\n"));
  const size_t first = line.find(' ');
  const size_t second = line.find(' ', first + 1);
  if (first == std::string::npos || second == std::string::npos ||
      line.compare(second + 1, 7, "HTTP/1.") != 0) {
    return Response("400 Bad Request", "text/plain", "bad request\n", false);
  }
  const std::string method = line.substr(0, first);
  std::string path = line.substr(first + 1, second - first - 1);
  path = path.substr(0, path.find('?'));
  if (method != "GET" && method != "HEAD") {
    return Response(
        "405 Method Not Allowed", "text/plain", "only GET\n", false);
  }
  const auto page = pages_.find(path);
  if (page == pages_.end()) {
    std::string known = "not found; there are:\n";
    for (const auto& [name, unused] : pages_)
      absl::StrAppend(&known, name, "\n");
    return Response("404 Not Found", "text/plain", known, method == "HEAD");
  }
  return Response("200 OK",
                  page->second.content_type,
                  page->second.body(),
                  method == "HEAD");
}

}  // namespace dapd
