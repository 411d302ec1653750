// Counts how every call ends, and protects the process from its handlers: an
// exception that leaves a handler ends its call with INTERNAL, is counted, and
// disturbs no other call.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "grpcpp/support/server_interceptor.h"

namespace dapd {

// gRPC's threads call these functions; each may be empty.
struct RpcObserver {
  // "unauthenticated", "forbidden", "unknown_method".
  std::function<void(const std::string& reason)> on_refused;
  // A handler has ended; `code` is a grpc::StatusCode.
  std::function<void(const std::string& method, int code)> on_handled;
  // Called when a handler has ended with an exception; on_handled follows.
  std::function<void(const std::string& method)> on_exception;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeHandlerGuard(std::shared_ptr<const RpcObserver> observer);

}  // namespace dapd
