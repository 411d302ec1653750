// absl::Status <-> grpc::Status. The codes are the same numbers; this is the
// only place that knows both types.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace dapd {

// The message is cut at 4 KiB: it travels in a header of limited size.
grpc::Status ToGrpcStatus(const absl::Status& status);

absl::Status FromGrpcStatus(const grpc::Status& status);

// A code and message that travelled inside a message (GenerationFailed,
// ScoreFailed). A code that is none, or OK, is INTERNAL: the sender is broken.
absl::Status FromWireError(int code, const std::string& message);

}  // namespace dapd
