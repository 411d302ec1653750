#include "services/cli/serve/http_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/time/clock.h"

#include "common/base/exit_code.h"
#include "common/base/listen_socket.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/rpc/pool/address_resolver.h"

namespace dapd {
namespace {

// How often a wait looks whether the listener stops.
constexpr absl::Duration kStopCheckInterval = absl::Milliseconds(200);
// The request line and the headers, and the framing of a chunked body.
constexpr size_t kMaxOverheadBytes = 64 << 10;
// How long a client may take to close its end after the answer.
constexpr absl::Duration kLinger = absl::Seconds(1);
constexpr size_t kMaxLingerBytes = 1 << 20;

int PollTime(absl::Duration duration) {
  return static_cast<int>(std::clamp<int64_t>(
      absl::ToInt64Milliseconds(duration) + 1, 0, 3'600'000));
}

// One connection, as the library reads and writes it.
class ConnectionStream final : public httplib::Stream {
 public:
  ConnectionStream(HttpTransport& transport,
                   const ListenerOptions& options,
                   const std::atomic<bool>& stopping)
      : transport_(transport),
        stopping_(stopping),
        write_time_(options.write_time),
        read_deadline_(SteadyNow() + options.read_time),
        bytes_left_(options.max_body_bytes + kMaxOverheadBytes) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return !HasLeft(); }

  ssize_t read(char* bytes, size_t size) override {
    if (begin_ == end_ && !Fill()) return -1;
    const size_t count = std::min(size, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, count, bytes);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* bytes, size_t size) override {
    const absl::Time deadline = SteadyNow() + write_time_;
    size_t written = 0;
    while (written < size) {
      const ssize_t count = transport_.Write(bytes + written, size - written);
      if (count > 0) {
        written += static_cast<size_t>(count);
      } else if (count == 0 || !Await(/*to_write=*/true, deadline)) {
        is_lost_ = true;
        return -1;
      }
    }
    return static_cast<ssize_t>(size);
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    Name(&::getpeername, &ip, &port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    Name(&::getsockname, &ip, &port);
  }
  socket_t socket() const override { return transport_.socket(); }

  // Returns whether the client has closed the connection or its writing end,
  // or did not take an answer in time.
  bool HasLeft() const {
    if (is_lost_) return true;
    pollfd ended = {.fd = transport_.socket(), .events = POLLRDHUP};
    return ::poll(&ended, 1, 0) > 0;
  }

  // Lets the client read the whole answer: closing a socket with unread bytes
  // would reset the connection.
  void Finish() {
    if (is_lost_) return;
    transport_.EndWriting();
    read_deadline_ = SteadyNow() + kLinger;
    bytes_left_ = kMaxLingerBytes;
    while (Fill()) {
    }
  }

 private:
  bool Fill() {
    while (bytes_left_ > 0) {
      const ssize_t count = transport_.Read(
          buffer_.data(), std::min(buffer_.size(), bytes_left_));
      if (count > 0) {
        begin_ = 0;
        end_ = static_cast<size_t>(count);
        bytes_left_ -= end_;
        return true;
      }
      if (count == 0 || !Await(/*to_write=*/false, read_deadline_)) break;
    }
    return false;
  }

  // A listener that stops waits no longer than kLinger for a client.
  bool Await(bool to_write, absl::Time deadline) const {
    pollfd ready = {.fd = transport_.socket(),
                    .events = transport_.PollEvents(to_write)};
    const absl::Time lingers = SteadyNow() + kLinger;
    while (true) {
      const absl::Time now = SteadyNow();
      const absl::Duration left =
          (stopping_ ? std::min(deadline, lingers) : deadline) - now;
      if (left <= absl::ZeroDuration()) return false;
      const int count =
          ::poll(&ready, 1, PollTime(std::min(left, kStopCheckInterval)));
      if (count > 0) return true;
      if (count < 0 && errno != EINTR) return false;
    }
  }

  void Name(int (*ask)(int, sockaddr*, socklen_t*),
            std::string* ip,
            int* port) const {
    sockaddr_storage address = {};
    socklen_t length = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (ask(transport_.socket(), any, &length) != 0) return;
    char text[INET6_ADDRSTRLEN] = {};
    if (address.ss_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
      ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
      *port = ntohs(v4->sin_port);
    } else if (address.ss_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
      ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
      *port = ntohs(v6->sin6_port);
    }
    *ip = text;
  }

  HttpTransport& transport_;
  const std::atomic<bool>& stopping_;
  const absl::Duration write_time_;
  absl::Time read_deadline_;
  size_t bytes_left_;  // that may still be read
  std::array<char, 4096> buffer_;
  size_t begin_ = 0;  // of the bytes in buffer_ that were not read
  size_t end_ = 0;
  bool is_lost_ = false;
};

// The connection that this thread serves.
thread_local const ConnectionStream* served_connection = nullptr;

}  // namespace

absl::StatusOr<std::unique_ptr<HttpListener>> HttpListener::Open(
    ListenerOptions options) {
  auto address = ParseHostPort(options.listen);
  if (!address.ok()) return WithExitCode(address.status(), ExitCode::kUsage);
  auto socket = OpenListenSocket(address->host, address->port);
  if (!socket.ok()) return WithExitCode(socket.status(), ExitCode::kConfig);
  return std::unique_ptr<HttpListener>(
      new HttpListener(std::move(options), socket->descriptor, socket->port));
}

HttpListener::HttpListener(ListenerOptions options, int socket, int port)
    : options_(std::move(options)), socket_(socket), port_(port) {
  // The library ends the body of an answer early if it has no socket.
  svr_sock_ = socket;
  set_payload_max_length(options_.max_body_bytes);
}

HttpListener::~HttpListener() {
  Stop();
  ::close(socket_);
}

void HttpListener::Start() {
  for (int i = 0; i < options_.connections; ++i) {
    servers_.emplace_back([this] {
      while (auto transport = accepted_.Pop()) Serve(*std::move(transport));
    });
  }
  acceptor_ = std::thread([this] { Accept(); });
}

void HttpListener::Stop() {
  stopping_ = true;
  accepted_.Close();
  if (acceptor_.joinable()) acceptor_.join();
  for (std::thread& server : servers_) server.join();
  servers_.clear();
}

void HttpListener::Accept() {
  TlsServer* tls = options_.tls.has_value() ? &*options_.tls : nullptr;
  while (!stopping_) {
    pollfd ready = {.fd = socket_, .events = POLLIN};
    if (::poll(&ready, 1, PollTime(kStopCheckInterval)) <= 0) continue;
    const int socket =
        ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      // Without descriptors it would only try again at once.
      if (errno == EMFILE || errno == ENFILE)
        absl::SleepFor(kStopCheckInterval);
      continue;
    }
    // A stream of tokens consists of small packets.
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    accepted_.Push(HttpTransport::Accept(socket, tls));
  }
}

void HttpListener::Serve(std::unique_ptr<HttpTransport> transport) {
  ConnectionStream stream(*transport, options_, stopping_);
  served_connection = &stream;
  bool is_closed = false;
  process_request(
      stream, /*close_connection=*/true, is_closed, [](httplib::Request&) {});
  served_connection = nullptr;
  stream.Finish();
}

bool HttpListener::ClientHasLeft() { return served_connection->HasLeft(); }

}  // namespace dapd
