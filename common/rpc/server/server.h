// RpcServer: a gRPC server with this system's settings: standard health and
// reflection, authorized calls (authorization.h), and limits on messages,
// headers, streams, threads and memory. It permits the keepalive pings of
// channel.h, but disconnects a client that pings more often than once a second.
// It closes a connection that does not finish its handshake in 10 s, does not
// answer a ping, or has no call for 10 minutes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"

#include "common/rpc/rpc_credentials.h"
#include "common/rpc/server/handler_guard.h"

namespace dapd {

struct RpcServerOptions {
  std::string listen;  // "host:port"; port 0: a free one
  std::shared_ptr<const RpcCredentials> credentials;  // null: loopback only
  RpcObserver observer;
  int max_concurrent_streams = 64;  // of one connection
  int max_threads = 128;            // each open call holds one
  absl::Duration handshake_timeout = absl::Seconds(10);
  absl::Duration max_connection_idle = absl::Minutes(10);
  // An older connection is asked to reconnect; its running calls may end. So no
  // call begins on the strength of a certificate that was checked longer ago.
  absl::Duration max_connection_age = absl::Hours(1);
};

struct RpcService {
  grpc::Service* service = nullptr;
  std::string name;  // v1::RolloutService::service_full_name(), for health
};

class RpcServer {
 public:
  // Listens and answers calls at once; health says NOT_SERVING until
  // SetServing(true). `services` must outlive the server. Returns UNAVAILABLE
  // with exit code kConfig for a port in use or an address that is not on this
  // machine; exit code kConfig, too, for an address that must not be served
  // like this (Security::ForRpc).
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options, const std::vector<RpcService>& services);
  // Shutdown(0).
  ~RpcServer();

  // Sets the answer of the health service for the server and each of its
  // services.
  void SetServing(bool serving);
  // Health answers SERVING for the server alone: it has started, while its
  // services still wait for other processes. A startup probe asks for this.
  void SetStarted();

  int port() const { return port_; }
  // Returns "host:port" with the port that was taken.
  const std::string& address() const { return address_; }

  // Takes no new call, lets running calls continue until `grace` has passed,
  // then cancels them. Blocks until all calls have ended.
  void Shutdown(absl::Duration grace);

 private:
  RpcServer(std::unique_ptr<grpc::Server> server,
            std::vector<std::string> names,
            std::string host,
            int port);
  grpc::HealthCheckServiceInterface& Health() const;

  const int port_;
  const std::string address_;
  const std::vector<std::string> names_;  // of the services
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace dapd
