#include "common/rpc/client/channel.h"

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"

#include "common/base/status_macros.h"
#include "common/rpc/transport.h"
#include "grpc/grpc.h"

namespace dapd {
namespace {

// When the last channel and server are gone, gRPC ends its threads and waits up
// to ten seconds for a polling thread. With this, gRPC stays initialized until
// the process ends.
void KeepGrpc() {
  [[maybe_unused]] static const bool kept = [] {
    grpc_init();
    return true;
  }();
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  KeepGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  // Despite its name, gRPC's limit for one attempt to connect.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A proxy named in the environment must not stand between these services.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  SetTransportArguments(
      [&](const char* name, int value) { arguments.SetInt(name, value); });
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(
    const std::string& address,
    const RpcCredentials& credentials,
    RoleSet peers) {
  ASSIGN_OR_RETURN(const auto channel, credentials.ForChannel(address, peers));
  return OpenChannel(address, channel);
}

}  // namespace dapd
