#include "common/base/listen_socket.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

constexpr int kBacklog = 64;

// Returns the text after the system's own error text.
const char* WayOut(int error) {
  switch (error) {
    case EADDRINUSE:
      return "; the port is in use: stop the other process, or choose another "
             "port";
    case EADDRNOTAVAIL:
      return "; the address is not this machine's: choose one that is";
    case EACCES:
    case EPERM:
      return "; the port needs a privilege: choose one above 1023";
    case EMFILE:
      return "; this process may have no more files open: raise ulimit -n";
    case ENFILE:
      return "; all processes of this machine together have too many files "
             "open: raise fs.file-max";
    case EAFNOSUPPORT:
      return "; this machine has no addresses of that kind: choose another";
    default:
      return "";
  }
}

}  // namespace

absl::StatusOr<ListenSocket> OpenListenSocket(const std::string& host,
                                              int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int unresolved =
      ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::string problem =
      absl::StrCat("cannot listen on ", host, ":", port, ": ");
  if (unresolved == EAI_SYSTEM) {
    return absl::UnavailableError(
        absl::StrCat(problem, std::strerror(errno), WayOut(errno)));
  }
  if (unresolved != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(problem, ::gai_strerror(unresolved)));
  }
  const absl::Cleanup free_found = [found] { ::freeaddrinfo(found); };
  const int listener =
      ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  if (listener < 0 ||
      ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) !=
          0 ||
      ::bind(listener, found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener, kBacklog) != 0) {
    const int reason = errno;
    if (listener >= 0) ::close(listener);
    return absl::UnavailableError(
        absl::StrCat(problem, std::strerror(reason), WayOut(reason)));
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size);
  char text[16] = {};
  ::getnameinfo(reinterpret_cast<sockaddr*>(&bound),
                size,
                nullptr,
                0,
                text,
                sizeof(text),
                NI_NUMERICSERV);
  return ListenSocket{.descriptor = listener, .port = std::stoi(text)};
}

}  // namespace dapd
