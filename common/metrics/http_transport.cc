#include "common/metrics/http_transport.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace dapd {
namespace {

class PlainTransport final : public HttpTransport {
 public:
  explicit PlainTransport(int socket) : HttpTransport(socket) {}
  ~PlainTransport() override { ::close(socket()); }

  ssize_t Read(char* bytes, size_t size) override {
    return Result(::recv(socket(), bytes, size, 0));
  }
  ssize_t Write(const char* bytes, size_t size) override {
    return Result(::send(socket(), bytes, size, MSG_NOSIGNAL));
  }
  void EndWriting() override { ::shutdown(socket(), SHUT_WR); }
  short PollEvents(bool wants_to_write) const override {
    return wants_to_write ? POLLOUT : POLLIN;
  }
  RoleSet PeerRoles() const override { return {}; }

 private:
  static ssize_t Result(ssize_t count) {
    if (count > 0) return count;
    const bool must_wait = count < 0 && (errno == EAGAIN || errno == EINTR);
    return must_wait ? kMustWait : 0;
  }
};

class TlsTransport final : public HttpTransport {
 public:
  TlsTransport(int socket, std::unique_ptr<TlsStream> stream)
      : HttpTransport(socket), stream_(std::move(stream)) {}
  ~TlsTransport() override {
    stream_.reset();
    ::close(socket());
  }

  ssize_t Read(char* bytes, size_t size) override {
    return stream_->Read(bytes, size);
  }
  ssize_t Write(const char* bytes, size_t size) override {
    return stream_->Write(bytes, size);
  }
  void EndWriting() override {
    stream_->EndWriting();
    ::shutdown(socket(), SHUT_WR);
  }
  // A handshake may have to write while the caller reads.
  short PollEvents(bool wants_to_write) const override {
    return wants_to_write || stream_->waits_to_write() ? POLLOUT : POLLIN;
  }
  RoleSet PeerRoles() const override { return stream_->PeerRoles(); }

 private:
  std::unique_ptr<TlsStream> stream_;
};

}  // namespace

std::unique_ptr<HttpTransport> HttpTransport::Accept(int socket,
                                                     TlsServer* tls) {
  if (tls == nullptr) return std::make_unique<PlainTransport>(socket);
  return std::make_unique<TlsTransport>(socket, tls->Accept(socket));
}

}  // namespace dapd
