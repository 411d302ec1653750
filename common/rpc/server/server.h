// RpcServer: a gRPC server with this system's settings: standard health and
// reflection, authorized calls (authorization.h), bounded messages, headers,
// streams, threads and memory, and permission for the keepalive pings of
// channel.h, but not for many more: a client that pings more often than every
// second is sent away. A connection that does not get through its handshake in
// 10 s, does not answer a ping, or has no call for 10 minutes, is closed.
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
  std::shared_ptr<const RpcCredentials> credentials;  // none: loopback only
  RpcObserver observer;
  int max_concurrent_streams = 64;  // of one connection
  int max_threads = 128;            // each open call holds one
  absl::Duration handshake_timeout = absl::Seconds(10);
  absl::Duration max_connection_idle = absl::Minutes(10);
  // An older one is asked to dial again, calls that run may end: no call begins
  // by what a certificate allowed longer ago.
  absl::Duration max_connection_age = absl::Hours(1);
};

struct RpcService {
  grpc::Service* service = nullptr;
  std::string name;  // v1::RolloutService::service_full_name(), for health
};

class RpcServer {
 public:
  // Listens and answers calls at once; health says NOT_SERVING until
  // SetServing(true). `services` must outlive the server. A port in use or an
  // address that is not this machine's is UNAVAILABLE, exit code kConfig; an
  // address that must not be served so (Security::ForRpc) has that code too.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options, const std::vector<RpcService>& services);
  // Shutdown(0).
  ~RpcServer();

  // What health answers, for the server and every service of it.
  void SetServing(bool serving);
  // For the server alone, SERVING: it has started, while its services still
  // wait for other processes. Who restarts what does not start asks for that.
  void SetStarted();

  int port() const { return port_; }
  // "host:port" with the port that was taken.
  const std::string& address() const { return address_; }

  // Takes no new call, gives running ones until `grace`, then cancels them.
  // Blocks until all have ended.
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
