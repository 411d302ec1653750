// What the gRPC library has to say, in the log of this process.
#pragma once

namespace dapd {

// From here on gRPC's own messages are messages of common/base/log.h instead of
// lines of its own on stderr, those about its progress (GRPC_TRACE,
// GRPC_VERBOSITY) included. For the whole process.
void LogWhatGrpcSays();

}  // namespace dapd
