// Moves bytes to and from one HTTP client, in plain text or with TLS.
#pragma once

#include <sys/types.h>

#include <memory>

#include "common/security/role.h"
#include "common/security/tls_server.h"

namespace dapd {

// Owns its socket, which is non-blocking. Not thread-safe.
class HttpTransport {
 public:
  static constexpr ssize_t kMustWait = TlsStream::kMustWait;

  // `tls` is null for plain text.
  static std::unique_ptr<HttpTransport> Accept(int socket, TlsServer* tls);
  virtual ~HttpTransport() = default;

  // Return the number of bytes moved; kMustWait until the socket is ready; 0
  // when the connection is over.
  virtual ssize_t Read(char* bytes, size_t size) = 0;
  virtual ssize_t Write(const char* bytes, size_t size) = 0;
  // Tells the client that no more bytes follow.
  virtual void EndWriting() = 0;

  // Returns the events that poll(2) must wait for if the caller wants to write,
  // or to read.
  virtual short PollEvents(bool wants_to_write) const = 0;

  // Returns the roles of the client's certificate.
  virtual RoleSet PeerRoles() const = 0;

  int socket() const { return socket_; }

 protected:
  explicit HttpTransport(int socket) : socket_(socket) {}

 private:
  const int socket_;
};

}  // namespace dapd
