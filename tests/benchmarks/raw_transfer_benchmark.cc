// The peer of all programs that send: plain sockets on loopback.
//
//   dapd_raw_transfer_benchmark sink
//       prints {"port": ...} and takes one connection at a time. For each
//       transfer it reads the length, then the bytes in pieces of 1 MiB, copies
//       each piece to memory of its own, and answers with a byte. A round
//       returns its CPU time since the round before.
//   dapd_raw_transfer_benchmark push BYTES PORT...
//       sends in a round BYTES to each sink at once and waits for the answers.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"

#include "common/base/check.h"
#include "common/tensor/host_tensor.h"
#include "tests/benchmarks/contender.h"
#include "tests/benchmarks/cpu_time.h"

namespace dapd {
namespace {

constexpr size_t kPiece = 1 << 20;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void Send(int socket, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t sent =
        ::send(socket, bytes, std::min(size, kPiece), MSG_NOSIGNAL);
    Check(sent > 0, "the sink listens");
    bytes += sent;
    size -= static_cast<size_t>(sent);
  }
}

// Returns false at the end of the connection.
bool Receive(int socket, char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(socket, bytes, size, 0);
    if (got <= 0) return false;
    bytes += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

HostTensor Allocate(uint64_t bytes) {
  return HostTensor::Allocate(DType::kUInt8, {static_cast<int64_t>(bytes)})
      .value();
}

void TakeTransfers(int listener) {
  std::vector<char> piece(kPiece);
  while (true) {
    const int socket = ::accept(listener, nullptr, nullptr);
    if (socket < 0) return;
    uint64_t bytes = 0;
    while (Receive(socket, reinterpret_cast<char*>(&bytes), sizeof(bytes))) {
      const HostTensor target = Allocate(bytes);
      for (uint64_t at = 0; at < bytes; at += kPiece) {
        const size_t size = std::min<uint64_t>(kPiece, bytes - at);
        if (!Receive(socket, piece.data(), size)) break;
        std::memcpy(target.data.get() + at, piece.data(), size);
      }
      Send(socket, "k", 1);
    }
    ::close(socket);
  }
}

int ServeSink() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  Check(::bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
            ::listen(listener, 1) == 0 &&
            ::getsockname(
                listener, reinterpret_cast<sockaddr*>(&address), &size) == 0,
        "loopback has a free port");
  std::jthread taker([listener] { TakeTransfers(listener); });
  CpuClock clock;
  const int code = ServeRounds({{"port", ntohs(address.sin_port)}},
                               [&](const std::string&) -> nlohmann::json {
                                 return {{"cpu_seconds", clock.SinceLast()}};
                               });
  ::shutdown(listener, SHUT_RDWR);
  return code;
}

int Connect(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(port);
  Check(::connect(socket,
                  reinterpret_cast<const sockaddr*>(&address),
                  sizeof(address)) == 0,
        "the sink listens");
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

int ServePush(uint64_t bytes, const std::vector<int>& ports) {
  const HostTensor source = Allocate(bytes);
  std::memset(source.data.get(), 1, bytes);
  std::vector<int> sockets;
  for (const int port : ports) sockets.push_back(Connect(port));
  CpuClock clock;
  const int code = ServeRounds(
      nlohmann::json::object(), [&](const std::string&) -> nlohmann::json {
        clock.SinceLast();
        const absl::Time start = absl::Now();
        std::vector<std::jthread> threads;
        for (const int socket : sockets) {
          threads.emplace_back([&, socket] {
            Send(socket, reinterpret_cast<const char*>(&bytes), sizeof(bytes));
            Send(socket, source.data.get(), bytes);
            char answer = 0;
            Check(Receive(socket, &answer, 1), "the sink answers");
          });
        }
        threads.clear();
        return {{"seconds", absl::ToDoubleSeconds(absl::Now() - start)},
                {"cpu_seconds", clock.SinceLast()}};
      });
  for (const int socket : sockets) ::close(socket);
  return code;
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  uint64_t bytes = 0;
  if (arguments == std::vector<std::string>{"sink"}) return dapd::ServeSink();
  if (arguments.size() < 3 || arguments[0] != "push" ||
      !absl::SimpleAtoi(arguments[1], &bytes)) {
    return 2;
  }
  std::vector<int> ports;
  for (size_t i = 2; i < arguments.size(); ++i) {
    ports.push_back(std::stoi(arguments[i]));
  }
  return dapd::ServePush(bytes, ports);
}
