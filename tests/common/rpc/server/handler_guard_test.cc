#include "common/rpc/server/handler_guard.h"

#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/metrics/metrics_registry.h"
#include "common/rpc/server/server.h"
#include "common/rpc/server/server_metrics.h"
#include "dapd/v1/rollout.grpc.pb.h"
#include "tests/fakes/generic_call.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Throws in every kind of method; Describe's exception is no std::exception.
class Thrower : public v1::RolloutService::Service {
 public:
  grpc::Status Describe(grpc::ServerContext*,
                        const v1::DescribeRequest*,
                        v1::DescribeResponse*) override {
    throw 42;
  }
  grpc::Status LoadAdapter(grpc::ServerContext*,
                           grpc::ServerReader<v1::LoadAdapterRequest>*,
                           v1::LoadAdapterResponse*) override {
    throw std::bad_alloc();
  }
  grpc::Status Generate(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::GenerateResponse, v1::GenerateRequest>*)
      override {
    throw std::runtime_error("secret detail");
  }
};

// Returns an error with the code that gRPC gives to exceptions.
class Failer : public v1::RolloutService::Service {
 public:
  grpc::Status Describe(grpc::ServerContext*,
                        const v1::DescribeRequest*,
                        v1::DescribeResponse*) override {
    return {grpc::StatusCode::UNKNOWN, "not known"};
  }
};

class HandlerGuardTest : public testing::Test {
 protected:
  std::shared_ptr<grpc::Channel> Serve(grpc::Service* service) {
    server_ = RpcServer::Start({.listen = "127.0.0.1:0",
                                .observer = MakeRpcObserver(&registry_)},
                               {{service, "dapd.v1.RolloutService"}})
                  .value();
    return OpenPlaintextChannel(server_->address());
  }

  MetricsRegistry registry_{"test"};
  std::unique_ptr<RpcServer> server_;
};

TEST_F(HandlerGuardTest, AnExceptionEndsItsCallIsCountedAndHurtsNobodyElse) {
  Thrower thrower;
  const auto channel = Serve(&thrower);
  for (int i = 0; i < 3; ++i) {
    for (const char* method : {"Describe", "LoadAdapter", "Generate"}) {
      const grpc::Status status =
          CallByName(channel, std::string("/dapd.v1.RolloutService/") + method);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL) << method;
      EXPECT_THAT(status.error_message(), Not(HasSubstr("secret")));
    }
  }
  const std::string metrics = registry_.Expose();
  for (const char* method : {"Describe", "LoadAdapter", "Generate"}) {
    EXPECT_THAT(metrics,
                HasSubstr(std::string("dapd_rpc_exceptions_total{method="
                                      "\"dapd.v1.RolloutService/") +
                          method + "\"} 3"));
  }
  EXPECT_THAT(
      metrics,
      HasSubstr("dapd_rpc_handled_total{code=\"internal\",method=\"dapd."
                "v1.RolloutService/Describe\"} 3"));
  std::string health;
  EXPECT_TRUE(
      CallByName(channel, "/grpc.health.v1.Health/Check", "", &health).ok());
  EXPECT_FALSE(health.empty());
}

TEST_F(HandlerGuardTest, AnErrorThatAHandlerReturnsStaysAsItIs) {
  Failer failer;
  const grpc::Status status =
      CallByName(Serve(&failer), "/dapd.v1.RolloutService/Describe");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNKNOWN);
  EXPECT_EQ(status.error_message(), "not known");
  EXPECT_THAT(registry_.Expose(),
              HasSubstr("dapd_rpc_exceptions_total{method=\"dapd.v1."
                        "RolloutService/Describe\"} 0"));
}

TEST_F(HandlerGuardTest, RefusedCallsAreCountedByReason) {
  Failer failer;
  const auto channel = Serve(&failer);
  CallByName(channel, "/no.such/Method");
  const std::string metrics = registry_.Expose();
  EXPECT_THAT(metrics,
              HasSubstr("dapd_rpc_refused_total{reason=\"unknown_method\"} 1"));
  EXPECT_THAT(metrics,
              HasSubstr("dapd_rpc_refused_total{reason=\"forbidden\"} 0"));
  EXPECT_THAT(metrics, Not(HasSubstr("no.such")));
}

}  // namespace
}  // namespace dapd
