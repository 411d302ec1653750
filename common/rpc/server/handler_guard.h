// What became of every call, and a net under every handler: an exception that
// escapes one ends its call with INTERNAL, is counted, and hurts nobody else.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "grpcpp/support/server_interceptor.h"

namespace dapd {

// Called from gRPC's threads; each may be empty.
struct RpcObserver {
  // "unauthenticated", "forbidden", "unknown_method".
  std::function<void(const std::string& reason)> on_refused;
  // A handler has ended; `code` is a grpc::StatusCode.
  std::function<void(const std::string& method, int code)> on_handled;
  // By an exception; on_handled follows.
  std::function<void(const std::string& method)> on_exception;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeHandlerGuard(std::shared_ptr<const RpcObserver> observer);

}  // namespace dapd
