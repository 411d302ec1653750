// The client side of grpc.health.v1, for probes and `dapd health`.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace dapd {

// Asks the server as a whole (service ""). OK: it says SERVING. UNAVAILABLE:
// it says something else, named in the message. Otherwise the call's own error:
// UNAVAILABLE if nothing listens there, DEADLINE_EXCEEDED if no answer came
// within `timeout`. Blocks until then.
absl::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         absl::Duration timeout);

}  // namespace dapd
