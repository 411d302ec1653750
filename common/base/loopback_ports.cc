#include "common/base/loopback_ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"

namespace dapd {
namespace {

constexpr int kFirstPort = 20000;
constexpr int kNumPorts = 10000;
constexpr int kPortsPerRun = 50;

bool IsFree(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  const absl::Cleanup close_socket = [descriptor] { ::close(descriptor); };
  // As our servers do: connections that a server of before has closed linger
  // for a minute and are in nobody's way.
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

}  // namespace

LoopbackPorts::LoopbackPorts()
    : next_(static_cast<int>(::getpid()) * kPortsPerRun % kNumPorts) {}

bool LoopbackPorts::TakeIfFree(int port) {
  return !taken_.contains(port) && IsFree(port) && taken_.insert(port).second;
}

absl::StatusOr<int> LoopbackPorts::Take(int preferred) {
  if (preferred != 0 && TakeIfFree(preferred)) return preferred;
  for (int i = 0; i < kNumPorts; ++i) {
    const int port = kFirstPort + next_;
    next_ = (next_ + 1) % kNumPorts;
    if (TakeIfFree(port)) return port;
  }
  return absl::UnavailableError("no free TCP port could be found on 127.0.0.1");
}

}  // namespace dapd
