// RpcCredentials: a Security in gRPC's terms. A process has one. It follows the
// certificate files: every server and channel made with it uses a new
// certificate from its next handshake on, without a restart.
//
// With TLS (1.2 or newer) both sides show a certificate and check the other
// side's certificate: the server wants a certificate of the authority, and then
// a role for each call; the client wants a certificate that names the server's
// role. Names and addresses are not compared: workers are dialled by the
// addresses that a name resolves to, and the role alone decides the rights of a
// process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

#include "common/security/security.h"

namespace dapd {

// Thread-safe.
class RpcCredentials {
 public:
  explicit RpcCredentials(std::shared_ptr<const Security> security)
      : security_(std::move(security)) {}
  // Makes credentials for programs without a configuration.
  static std::shared_ptr<const RpcCredentials> Loopback();

  // Makes credentials for a server that listens on `address`. `on_refused`: see
  // CallAuthorizer. Returns the errors of Security::ForRpc.
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ForServer(
      const std::string& address,
      std::function<void(const std::string& reason)> on_refused) const;

  // Makes credentials for a channel to `address`, where a process with one of
  // `peers` must be. This process's token, if it has one, goes with every call.
  // Returns the errors of Security::ForRpc.
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ForChannel(
      const std::string& address, RoleSet peers) const;

 private:
  const std::shared_ptr<const Security> security_;
};

}  // namespace dapd
