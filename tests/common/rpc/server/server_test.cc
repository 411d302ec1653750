#include "common/rpc/server/server.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "dapd/v1/trainer.grpc.pb.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/generic_call.h"
#include "tests/fakes/held_trainer.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class ServerTest : public ::testing::Test {
 protected:
  void Start() {
    auto started = RpcServer::Start(
        {.listen = "127.0.0.1:0"},
        {{&service_, v1::TrainerService::service_full_name()}});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    channel_ = OpenPlaintextChannel(server_->address());
  }

  grpc::Status Call(absl::Duration timeout = absl::Seconds(20)) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    v1::GetStatusResponse response;
    return v1::TrainerService::NewStub(channel_)->GetStatus(
        &context, {}, &response);
  }

  // Calls grpc.health.v1.Health/Check by hand, because its proto is not
  // installed. Field 1 of the request is the service's name; field 1 of the
  // answer is 1 for SERVING and 2 for NOT_SERVING.
  std::string CheckHealth(const std::string& service) {
    std::string request;
    if (!service.empty()) {
      request = absl::StrCat(
          "\x0a", std::string(1, static_cast<char>(service.size())), service);
    }
    std::string answer;
    const grpc::Status status =
        CallByName(channel_, "/grpc.health.v1.Health/Check", request, &answer);
    if (!status.ok()) return status.error_message();
    return answer == "\x08\x01" ? "SERVING" : "NOT_SERVING";
  }

  HeldTrainer service_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ServerTest, PortZeroTakesAFreePortAndAnswers) {
  Start();
  EXPECT_GT(server_->port(), 0);
  EXPECT_EQ(server_->address(), absl::StrCat("127.0.0.1:", server_->port()));
  const grpc::Status status = Call();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServerTest, APortInUseIsAClearErrorWithTheConfigExitCode) {
  Start();
  HeldTrainer other;
  const auto second =
      RpcServer::Start({.listen = server_->address()}, {{&other, "other"}});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ExitCodeOf(second.status()), ExitCode::kConfig);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(server_->address()));
}

TEST_F(ServerTest, HealthFollowsSetServing) {
  Start();
  for (const char* service : {"", "dapd.v1.TrainerService"}) {
    EXPECT_EQ(CheckHealth(service), "NOT_SERVING");
  }
  server_->SetStarted();
  EXPECT_EQ(CheckHealth(""), "SERVING");
  EXPECT_EQ(CheckHealth("dapd.v1.TrainerService"), "NOT_SERVING");
  server_->SetServing(true);
  for (const char* service : {"", "dapd.v1.TrainerService"}) {
    EXPECT_EQ(CheckHealth(service), "SERVING");
  }
}

TEST_F(ServerTest, ReflectionIsThere) {
  Start();
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  grpc::GenericStub stub(channel_);
  grpc::CompletionQueue queue;
  // The bytes are list_services (field 7) of ServerReflectionRequest.
  const grpc::Slice slice(std::string("\x3a\x00", 2));
  const grpc::ByteBuffer sent(&slice, 1);
  auto call = stub.PrepareCall(
      &context,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  call->WriteLast(sent, grpc::WriteOptions(), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer received;
  call->Read(&received, nullptr);
  queue.Next(&tag, &ok);
  ASSERT_TRUE(ok);
  grpc::Slice answer;
  ASSERT_TRUE(received.DumpToSingleSlice(&answer).ok());
  EXPECT_THAT(std::string(answer.begin(), answer.end()),
              HasSubstr("dapd.v1.TrainerService"));
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
}

TEST_F(ServerTest, ShutdownLetsARunningCallEndWithinTheGrace) {
  Start();
  service_.hold = true;
  grpc::Status status;
  std::jthread caller([&] { status = Call(); });
  EXPECT_TRUE(Eventually([&] { return service_.calls != 0; }));
  std::jthread releaser([&] { service_.hold = false; });
  server_->Shutdown(absl::Seconds(20));
  caller.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServerTest, ShutdownCancelsWhatOutlastsTheGrace) {
  Start();
  service_.hold = true;
  grpc::Status status;
  std::jthread caller([&] { status = Call(); });
  EXPECT_TRUE(Eventually([&] { return service_.calls != 0; }));
  const absl::Time start = absl::Now();
  server_->Shutdown(absl::Milliseconds(50));
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  caller.join();
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace dapd
