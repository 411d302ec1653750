// Bytes to and from one HTTP client, in plain text or within TLS.
#pragma once

#include <sys/types.h>

#include <memory>

#include "common/security/role.h"
#include "common/security/tls_server.h"

namespace dapd {

// Owns its socket, which does not block. Not thread-safe.
class HttpTransport {
 public:
  static constexpr ssize_t kMustWait = TlsStream::kMustWait;

  // `tls`: none for plain text.
  static std::unique_ptr<HttpTransport> Accept(int socket, TlsServer* tls);
  virtual ~HttpTransport() = default;

  // The bytes moved; kMustWait until the socket is ready; 0: it is over.
  virtual ssize_t Read(char* bytes, size_t size) = 0;
  virtual ssize_t Write(const char* bytes, size_t size) = 0;
  // Tells the client that nothing more comes.
  virtual void EndWriting() = 0;

  // What poll(2) has to wait for if the caller wants to write, or to read.
  virtual short PollEvents(bool wants_to_write) const = 0;

  // Of the client's certificate.
  virtual RoleSet PeerRoles() const = 0;

  int socket() const { return socket_; }

 protected:
  explicit HttpTransport(int socket) : socket_(socket) {}

 private:
  const int socket_;
};

}  // namespace dapd
