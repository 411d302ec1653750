// Implements the server's end of TLS over non-blocking sockets, for the HTTP
// responder. (gRPC has its own: common/rpc/rpc_credentials.h.) The version is
// TLS 1.2 or newer. If the identity names an authority, a client may present a
// certificate of the authority, and must not present any other.
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

// Represents a connection. Not thread-safe.
class TlsStream {
 public:
  // Calls return the number of bytes moved, kMustWait if the socket must become
  // ready first, or 0 when the connection is over, in order or not. The first
  // calls include the handshake.
  static constexpr ssize_t kMustWait = -1;
  ssize_t Read(char* bytes, size_t size);
  ssize_t Write(const char* bytes, size_t size);
  // Tells the client that no more bytes follow.
  void EndWriting();

  // After kMustWait, returns whether the socket must become ready for writing,
  // not for reading.
  bool waits_to_write() const { return waits_to_write_; }

  // Returns the roles of the client's certificate; none if it presented none.
  // They are known after the first bytes were read.
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
  // Returns CheckIdentity's errors.
  static absl::StatusOr<TlsServer> Create(const IdentityPaths& paths);

  // The caller keeps `socket`, which must outlive the stream. Changed
  // certificates are used within a second. Files that do not belong together,
  // cannot be read or are not valid yet are logged once, and tried again every
  // second; until then the previous certificates stay in effect.
  std::unique_ptr<TlsStream> Accept(int socket);

 private:
  explicit TlsServer(IdentityPaths paths) : paths_(std::move(paths)) {}
  absl::Status Load();
  void LoadIfChanged();

  IdentityPaths paths_;
  SslContextPointer context_;
  std::string stamp_;         // stamp of the files in effect
  std::string logged_stamp_;  // stamp of the files that could not be used
  absl::Time looked_;
};

}  // namespace dapd
