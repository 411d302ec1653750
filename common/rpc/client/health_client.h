// The client side of grpc.health.v1, for probes and `dapd health`.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace dapd {

// Asks a service by its full name, or the whole server by "", and blocks for
// the answer. OK: it answers SERVING. UNAVAILABLE: it answers something else,
// which the message names. Otherwise the error of the call: NOT_FOUND if there
// is no such service, UNAVAILABLE if nothing listens there, DEADLINE_EXCEEDED
// if no answer came within `timeout`.
absl::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& service,
                         absl::Duration timeout);

}  // namespace dapd
