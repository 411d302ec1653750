#include "common/rpc/client/health_client.h"

#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

#include "common/rpc/server/server.h"
#include "dapd/v1/trainer.grpc.pb.h"
#include "tests/fakes/generic_call.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

TEST(HealthClientTest, AServerIsHealthyOnlyWhileItServes) {
  v1::TrainerService::Service service;
  auto started =
      RpcServer::Start({.listen = "127.0.0.1:0"},
                       {{&service, v1::TrainerService::service_full_name()}});
  ASSERT_TRUE(started.ok()) << started.status();
  const std::unique_ptr<RpcServer> server = *std::move(started);
  const auto channel = OpenPlaintextChannel(server->address());

  const absl::Status before = CheckHealth(channel, "", kTimeout);
  EXPECT_EQ(before.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(before.message()), HasSubstr("NOT_SERVING"));
  server->SetServing(true);
  EXPECT_TRUE(CheckHealth(channel, "", kTimeout).ok());
  server->SetServing(false);
  EXPECT_FALSE(CheckHealth(channel, "", kTimeout).ok());
}

TEST(HealthClientTest, AServiceIsAskedByItsName) {
  v1::TrainerService::Service service;
  const std::string name = v1::TrainerService::service_full_name();
  auto started =
      RpcServer::Start({.listen = "127.0.0.1:0"}, {{&service, name}});
  ASSERT_TRUE(started.ok()) << started.status();
  const std::unique_ptr<RpcServer> server = *std::move(started);
  const auto channel = OpenPlaintextChannel(server->address());

  // The process runs but waits for other services.
  server->SetStarted();
  EXPECT_TRUE(CheckHealth(channel, "", kTimeout).ok());
  EXPECT_THAT(std::string(CheckHealth(channel, name, kTimeout).message()),
              HasSubstr("NOT_SERVING"));
  server->SetServing(true);
  EXPECT_TRUE(CheckHealth(channel, name, kTimeout).ok());
  EXPECT_EQ(CheckHealth(channel, "dapd.v1.Nobody", kTimeout).code(),
            absl::StatusCode::kNotFound);
}

TEST(HealthClientTest, NothingListeningIsUnavailable) {
  std::string address;
  {
    v1::TrainerService::Service service;
    const auto gone =
        RpcServer::Start({.listen = "127.0.0.1:0"}, {{&service, "gone"}});
    ASSERT_TRUE(gone.ok()) << gone.status();
    address = (*gone)->address();
  }
  EXPECT_EQ(CheckHealth(OpenPlaintextChannel(address), "", kTimeout).code(),
            absl::StatusCode::kUnavailable);
}

// Answers every method with the given bytes, or never.
class FakeServer {
 public:
  explicit FakeServer(std::string answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(
        "127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    // The setting is process-wide; gRPC's own health service would answer
    // first.
    grpc::EnableDefaultHealthCheckService(false);
    server_ = builder.BuildAndStart();
    grpc::EnableDefaultHealthCheckService(true);
    thread_ = std::jthread([this] { Serve(); });
  }
  ~FakeServer() {
    server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  void Serve() {
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream(&context);
    service_.RequestCall(&context, &stream, queue_.get(), queue_.get(), this);
    void* tag = nullptr;
    bool ok = false;
    if (queue_->Next(&tag, &ok) && ok && !answer_.empty()) {
      const grpc::Slice slice(answer_);
      stream.WriteAndFinish(grpc::ByteBuffer(&slice, 1),
                            grpc::WriteOptions(),
                            grpc::Status::OK,
                            this);
    }
    while (queue_->Next(&tag, &ok)) {
    }
  }

  const std::string answer_;
  int port_ = 0;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::jthread thread_;
};

TEST(HealthClientTest, AnUnknownServingStatusIsNotHealthy) {
  FakeServer server("\x08\x07");
  const absl::Status status =
      CheckHealth(OpenPlaintextChannel(server.address()), "", kTimeout);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("status 7"));
}

TEST(HealthClientTest, AnAnswerThatIsNoMessageIsNotHealthy) {
  FakeServer server("\xff\xff\xff");
  EXPECT_EQ(
      CheckHealth(OpenPlaintextChannel(server.address()), "", kTimeout).code(),
      absl::StatusCode::kUnavailable);
}

TEST(HealthClientTest, AServerThatNeverAnswersEndsWithTheTimeout) {
  FakeServer server("");
  EXPECT_EQ(
      CheckHealth(
          OpenPlaintextChannel(server.address()), "", absl::Milliseconds(300))
          .code(),
      absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace dapd
