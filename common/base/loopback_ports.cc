#include "common/base/loopback_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace dapd {
namespace {

constexpr int kFirstPort = 20000;
constexpr int kNumPorts = 10000;
constexpr int kPortsPerRun = 50;
constexpr int kMaxPort = 65535;

bool IsFree(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  const absl::Cleanup close_socket = [descriptor] { ::close(descriptor); };
  // Our servers do the same: closed connections of an earlier server remain for
  // a minute and disturb nobody.
  const int yes = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return ::bind(descriptor,
                reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) == 0;
}

// Returns a socket with a name that only one process can have at a time in the
// network namespace of the port. The kernel frees the name when the descriptor
// is closed, for whatever reason. Negative if another process has the name.
int Claim(int port) {
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const std::string name = absl::StrCat("dapd-port-", port);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // A name that begins with a zero byte is not a file.
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), size) ==
      0) {
    return descriptor;
  }
  ::close(descriptor);
  return -1;
}

}  // namespace

LoopbackPorts::LoopbackPorts()
    : next_(static_cast<int>(::getpid()) * kPortsPerRun % kNumPorts) {}

LoopbackPorts::~LoopbackPorts() {
  for (const int claim : claims_) ::close(claim);
}

bool LoopbackPorts::TakeIfFree(int port) {
  const int claim = Claim(port);
  if (claim < 0) return false;
  if (!IsFree(port)) {
    ::close(claim);
    return false;
  }
  claims_.push_back(claim);
  return true;
}

absl::StatusOr<int> LoopbackPorts::Take(int preferred) {
  if (preferred != 0 && preferred <= kMaxPort && TakeIfFree(preferred)) {
    return preferred;
  }
  for (int i = 0; i < kNumPorts; ++i) {
    const int port = kFirstPort + next_;
    next_ = (next_ + 1) % kNumPorts;
    if (TakeIfFree(port)) return port;
  }
  return absl::UnavailableError("no free TCP port could be found on 127.0.0.1");
}

}  // namespace dapd
