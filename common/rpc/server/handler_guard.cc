#include "common/rpc/server/handler_guard.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/log.h"

namespace dapd {
namespace {

namespace interception = grpc::experimental;

// The status that gRPC's generated code makes of an exception
// (CatchingFunctionHandler in grpcpp/support/method_handler.h). A test fails if
// another version of gRPC makes a different one.
bool IsException(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNKNOWN &&
         status.error_message() == "Unexpected error in RPC handling";
}

class Guard final : public interception::Interceptor {
 public:
  Guard(std::string method, std::shared_ptr<const RpcObserver> observer)
      : method_(std::move(method)), observer_(std::move(observer)) {}

  void Intercept(interception::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(
            interception::InterceptionHookPoints::PRE_SEND_STATUS)) {
      grpc::Status status = batch->GetSendStatus();
      if (IsException(status)) {
        LogError(absl::StrCat("an exception ended a call of ", method_));
        status = {grpc::StatusCode::INTERNAL,
                  "the handler failed unexpectedly; the server's log names the "
                  "call"};
        batch->ModifySendStatus(status);
        if (observer_->on_exception) observer_->on_exception(method_);
      }
      if (observer_->on_handled) {
        observer_->on_handled(method_, status.error_code());
      }
    }
    batch->Proceed();
  }

 private:
  const std::string method_;
  const std::shared_ptr<const RpcObserver> observer_;
};

class GuardFactory final
    : public interception::ServerInterceptorFactoryInterface {
 public:
  explicit GuardFactory(std::shared_ptr<const RpcObserver> observer)
      : observer_(std::move(observer)) {}

  interception::Interceptor* CreateServerInterceptor(
      interception::ServerRpcInfo* info) override {
    return new Guard(info->method(), observer_);
  }

 private:
  const std::shared_ptr<const RpcObserver> observer_;
};

}  // namespace

std::unique_ptr<interception::ServerInterceptorFactoryInterface>
MakeHandlerGuard(std::shared_ptr<const RpcObserver> observer) {
  return std::make_unique<GuardFactory>(std::move(observer));
}

}  // namespace dapd
