// Implements servers that act as a worker, for tests of the trainer's clients.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

#include "common/rpc/server/server.h"
#include "common/rpc/transfer/adapter_stream.h"
#include "tests/fakes/encoded_messages.h"

namespace dapd {

// The test fails if the server does not start.
inline std::unique_ptr<RpcServer> StartOrFail(const std::string& listen,
                                              grpc::Service* service,
                                              const std::string& name) {
  auto server = RpcServer::Start({.listen = listen}, {{service, name}});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

// Implements a worker that may break the protocol. It accepts every adapter,
// and the derived class implements the stream of tasks. Contract is
// v1::RolloutService or v1::TeacherService.
template <typename Contract>
class ScriptedWorker : public Contract::Service {
 public:
  explicit ScriptedWorker(WorkerDescription description)
      : description_(std::move(description)) {}

  grpc::Status Describe(grpc::ServerContext*,
                        const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override {
    *response = MakeDescribeResponse(description_, {});
    response->set_unix_ns(response->unix_ns() + clock_ahead_ns_);
    if (!version_.empty()) response->set_version(version_);
    return grpc::Status::OK;
  }
  grpc::Status LoadAdapter(grpc::ServerContext*,
                           grpc::ServerReader<v1::LoadAdapterRequest>* reader,
                           v1::LoadAdapterResponse* response) override {
    const auto upload = ReceiveAdapter(description_, reader);
    *response = MakeLoadAdapterResponse(
        {upload->set,
         {true, upload->version, upload->adapter.digest},
         {7, {-1.5F}}});
    return grpc::Status::OK;
  }

  const std::string& address() const { return server_->address(); }
  // Sets a version other than this program's; must be called before a client
  // connects.
  void SetVersion(std::string version) { version_ = std::move(version); }
  // Sets the clock that Describe reports.
  void SetClockAhead(absl::Duration ahead) {
    clock_ahead_ns_ = absl::ToInt64Nanoseconds(ahead);
  }

 protected:
  // The derived class calls Serve when it is ready, and Stop before it is
  // destroyed.
  void Serve() {
    server_ = StartOrFail("127.0.0.1:0", this, Contract::service_full_name());
  }
  void Stop() { server_->Shutdown(absl::ZeroDuration()); }

 private:
  const WorkerDescription description_;
  std::string version_;
  std::atomic<int64_t> clock_ahead_ns_ = 0;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace dapd
