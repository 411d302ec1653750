// What both ends of a gRPC connection want of it: bounded messages, large
// frames, no compression, and keepalive pings (2 s, answer within 3.5 s, also
// without calls), which find a silent peer in seconds.
#pragma once

#include <functional>

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

// Calls `set` with the channel arguments that both ends of a connection want
// for payloads: large frames, no compression.
void SetTransportArguments(
    const std::function<void(const char* name, int value)>& set);

}  // namespace dapd
