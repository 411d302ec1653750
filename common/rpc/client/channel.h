// Client channels with this system's settings: the settings of both ends
// (transport.h), at most 5 s to make a connection (a busy machine needs more
// than 1 s), and pauses of 0.2 to 5 s before a reconnect.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"

#include "common/rpc/rpc_credentials.h"
#include "common/security/role.h"

namespace dapd {

inline constexpr int kConnectTimeoutMs = 5'000;  // handshakes included

// `address`: "ip:port" or "host:port". Does not connect yet. Each channel has
// its own connection: a new channel to the same address starts afresh.
std::shared_ptr<grpc::Channel> OpenChannel(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// Returns a channel with credentials for a process that has one of the roles
// `peers`. Returns the errors of Security::ForRpc.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(
    const std::string& address,
    const RpcCredentials& credentials,
    RoleSet peers);

}  // namespace dapd
