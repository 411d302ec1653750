// Client channels with this system's settings: keepalive pings (2 s, answer
// within 3.5 s, also without calls) find a silent peer in seconds, messages are
// bounded, a connection may take 5 s to be made (a loaded machine takes more
// than one), reconnects back off from 0.2 to 5 s.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"

#include "common/rpc/client/credentials.h"
#include "common/security/role.h"

namespace dapd {

// The longest message on any stream: a prompt or all views of one sample.
inline constexpr int kMaxMessageBytes = 16 << 20;
// The longest header list of a call.
inline constexpr int kMaxMetadataBytes = 16 << 10;
// HTTP/2's frames: a chunk is one frame. Both ends tell the other.
inline constexpr int kMaxFrameBytes = 1 << 20;
// What a stream has handed over and the socket has not yet taken: while a chunk
// is written the next one is made ready.
inline constexpr int kWriteBufferBytes = 2 << 20;
inline constexpr int kKeepaliveTimeMs = 2'000;
inline constexpr int kKeepaliveTimeoutMs = 3'500;
inline constexpr int kConnectTimeoutMs = 5'000;  // handshakes included

// Calls `set` with the channel arguments that both ends of a connection want
// for payloads: large frames, no compression.
void SetTransportArguments(
    const std::function<void(const char* name, int value)>& set);

// `address`: "ip:port" or "host:port". Does not connect yet. Each channel has
// its own connection: a new one to the same address starts afresh.
std::shared_ptr<grpc::Channel> OpenChannel(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// The same with credentials for a process that has one of the roles `peers`.
// Errors as Security::ForRpc.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(
    const std::string& address,
    const RpcCredentials& credentials,
    RoleSet peers);

}  // namespace dapd
