// absl::Status <-> grpc::Status. The codes are the same numbers; this is the
// only place that knows both types.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace dapd {

grpc::Status ToGrpcStatus(const absl::Status& status);

// Returns the message in the form in which it is sent, in a status or inside a
// message (GenerationFailed, ScoreFailed). It is escaped
// (common/base/printable.h), since proto3 refuses ill-formed UTF-8, and cut at
// 4 KiB, since it may travel in a header of limited size.
std::string WireMessage(const absl::Status& status);

absl::Status FromGrpcStatus(const grpc::Status& status);

// Converts a code and message that were sent inside a message
// (GenerationFailed, ScoreFailed). An unknown code, or OK, becomes INTERNAL:
// the sender is broken.
absl::Status FromWireError(int code, const std::string& message);

}  // namespace dapd
