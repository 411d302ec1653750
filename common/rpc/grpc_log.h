// Messages of the gRPC library in the log of this process.
#pragma once

namespace dapd {

// From now on gRPC's own messages go to common/base/log.h and no longer to
// stderr, including the messages about its progress (GRPC_TRACE,
// GRPC_VERBOSITY). Applies to the whole process.
void LogWhatGrpcSays();

}  // namespace dapd
