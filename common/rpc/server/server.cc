#include "common/rpc/server/server.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"

#include "common/base/check.h"
#include "common/base/exit_code.h"
#include "common/base/listen_socket.h"
#include "common/base/process_limits.h"
#include "common/base/status_macros.h"
#include "common/rpc/pool/address_resolver.h"
#include "common/rpc/transport.h"
#include "grpc/support/log.h"

namespace dapd {
namespace {

// Half the clients' ping interval, so that a ping may come early.
constexpr int kMinPingIntervalMs = kKeepaliveTimeMs / 2;

constexpr int kMaxPingStrikes = 2;
// The server's own descriptors, before the first connection.
constexpr int kFilesOfServer = 16;
constexpr int kThreadsOfServer = 12;
// Bytes of messages that were read and not yet handed over, on all connections.
constexpr size_t kMaxBufferedBytes = size_t{1} << 30;

int ToMs(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Each connection needs a descriptor; without one, gRPC stops accepting.
void RaiseFileLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// These are process-wide in gRPC and must be set before a server is built.
void PrepareProcess() {
  static std::once_flag once;
  std::call_once(once, [] {
    // gRPC's error lines repeat the Status; GRPC_VERBOSITY brings them back.
    if (std::getenv("GRPC_VERBOSITY") == nullptr) {
      gpr_set_log_verbosity(
          static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
    }
    RaiseFileLimit();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// Returns whether this process may open this many more files.
bool CanOpenFiles(int count) {
  std::vector<int> opened;
  const absl::Cleanup close_all = [&] {
    for (const int descriptor : opened) ::close(descriptor);
  };
  for (int i = 0; i < count; ++i) {
    const int descriptor = ::eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0) return false;
    opened.push_back(descriptor);
  }
  return true;
}

absl::Status CannotListen(const HostPort& target, const std::string& reason) {
  return WithExitCode(absl::UnavailableError(
                          absl::StrCat("cannot listen on ",
                                       JoinHostPort(target.host, target.port),
                                       ": ",
                                       reason)),
                      ExitCode::kConfig);
}

// gRPC itself gives no reason.
absl::Status WhyNotListening(const HostPort& target) {
  const auto own = OpenListenSocket(target.host, target.port);
  if (!own.ok()) return WithExitCode(own.status(), ExitCode::kConfig);
  ::close(own->descriptor);
  return CannotListen(target,
                      "gRPC failed, though the port is free; "
                      "GRPC_VERBOSITY=error shows its reason");
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcServerOptions& options, const std::vector<RpcService>& services) {
  ASSIGN_OR_RETURN(const HostPort target, ParseHostPort(options.listen));
  PrepareProcess();
  // gRPC ends the process if it lacks one of these.
  RETURN_IF_ERROR(CheckProcessLimits({.threads = kThreadsOfServer}));
  if (!CanOpenFiles(kFilesOfServer)) {
    return CannotListen(target,
                        "Too many open files; this process may have no more: "
                        "raise ulimit -n");
  }
  const auto credentials = options.credentials == nullptr
                               ? RpcCredentials::Loopback()
                               : options.credentials;
  ASSIGN_OR_RETURN(
      const auto server_credentials,
      credentials->ForServer(options.listen, options.observer.on_refused));
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("dapd");
  quota.SetMaxThreads(options.max_threads);
  quota.Resize(kMaxBufferedBytes);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  SetTransportArguments([&](const char* name, int value) {
    builder.AddChannelArgument(name, value);
  });
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             ToMs(options.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             ToMs(options.max_connection_idle));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             ToMs(options.max_connection_age));
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(
      MakeHandlerGuard(std::make_shared<RpcObserver>(options.observer)));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  // Without this two servers share a port silently.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = 0;
  builder.AddListeningPort(options.listen, server_credentials, &port);
  std::vector<std::string> names;
  for (const RpcService& service : services) {
    builder.RegisterService(service.service);
    names.push_back(service.name);
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return WhyNotListening(target);
  }
  auto result = std::unique_ptr<RpcServer>(
      new RpcServer(std::move(server), std::move(names), target.host, port));
  result->SetServing(false);
  return result;
}

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server,
                     std::vector<std::string> names,
                     std::string host,
                     int port)
    : port_(port),
      address_(JoinHostPort(host, port)),
      names_(std::move(names)),
      server_(std::move(server)) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

grpc::HealthCheckServiceInterface& RpcServer::Health() const {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  Check(health != nullptr, "health is enabled before a server is built");
  return *health;
}

void RpcServer::SetServing(bool serving) {
  Health().SetServingStatus(serving);
  for (const std::string& name : names_) {
    Health().SetServingStatus(name, serving);
  }
}

void RpcServer::SetStarted() { Health().SetServingStatus("", true); }

void RpcServer::Shutdown(absl::Duration grace) {
  SetServing(false);
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
}

}  // namespace dapd
