// The client side of grpc.health.v1, for probes and `dapd health`.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace dapd {

// Asks a service by its full name, or "" the server as a whole. OK: it says
// SERVING. UNAVAILABLE: it says something else, named in the message. Otherwise
// the call's own error: NOT_FOUND if it has no such service, UNAVAILABLE if
// nothing listens there, DEADLINE_EXCEEDED if no answer came within `timeout`.
// Blocks until then.
absl::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& service,
                         absl::Duration timeout);

}  // namespace dapd
