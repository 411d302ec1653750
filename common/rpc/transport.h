// The settings that both ends of a gRPC connection need: bounded messages,
// large frames, no compression, and keepalive pings (every 2 s, to be answered
// within 3.5 s, also without calls), which detect a silent peer in seconds.
#pragma once

#include <functional>

namespace dapd {

// The longest message on any stream: a prompt, or all views of one sample.
inline constexpr int kMaxMessageBytes = 16 << 20;
// The longest header list of a call.
inline constexpr int kMaxMetadataBytes = 16 << 10;
// The size of HTTP/2's frames: a chunk is one frame. Each end announces this
// size to the other end.
inline constexpr int kMaxFrameBytes = 1 << 20;
// The bytes that a stream has handed over and the socket has not yet taken: the
// next chunk is prepared while a chunk is written.
inline constexpr int kWriteBufferBytes = 2 << 20;
inline constexpr int kKeepaliveTimeMs = 2'000;
inline constexpr int kKeepaliveTimeoutMs = 3'500;

// Calls `set` with the channel arguments that both ends of a connection want
// for payloads: large frames, no compression.
void SetTransportArguments(
    const std::function<void(const char* name, int value)>& set);

}  // namespace dapd
