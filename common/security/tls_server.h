// The server's end of TLS over sockets that do not block, for the HTTP
// responder. (gRPC brings its own: common/rpc/rpc_credentials.h.) TLS 1.2 or
// newer; a client may show a certificate of the authority, and must not show
// another.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/security/certificate.h"
#include "common/security/openssl_pointers.h"
#include "common/security/role.h"

namespace dapd {

// One connection. Not thread-safe.
class TlsStream {
 public:
  // Calls return the bytes they moved, kMustWait if the socket has to become
  // ready first, or 0: it is over, in order or not. The handshake is part of
  // the first ones.
  static constexpr ssize_t kMustWait = -1;
  ssize_t Read(char* bytes, size_t size);
  ssize_t Write(const char* bytes, size_t size);
  // Tells the client that nothing more comes.
  void EndWriting();

  // Which way the socket has to become ready after kMustWait.
  bool waits_to_write() const { return waits_to_write_; }

  // Of the client's certificate; none if it showed none. Known once something
  // was read.
  RoleSet PeerRoles() const;

 private:
  friend class TlsServer;
  explicit TlsStream(SslPointer ssl) : ssl_(std::move(ssl)) {}
  ssize_t Result(int count);

  SslPointer ssl_;
  bool waits_to_write_ = false;
  bool is_broken_ = false;
};

// Not thread-safe.
class TlsServer {
 public:
  // Errors as CheckIdentity.
  static absl::StatusOr<TlsServer> Create(const IdentityPaths& paths);

  // `socket` stays the caller's and must outlive the stream. Certificates that
  // have changed are used from the next second on; files that do not fit
  // together, cannot be read or are not valid yet are not, which is logged
  // once, and the ones before stay in force. They are tried again every second.
  std::unique_ptr<TlsStream> Accept(int socket);

 private:
  explicit TlsServer(IdentityPaths paths) : paths_(std::move(paths)) {}
  absl::Status Load();
  void LoadIfChanged();

  IdentityPaths paths_;
  SslContextPointer context_;
  std::string stamp_;         // of the files in force
  std::string logged_stamp_;  // of those that could not be used
  absl::Time looked_;
};

}  // namespace dapd
