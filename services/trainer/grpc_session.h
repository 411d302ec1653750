// GrpcSession: what the sessions of both roles have in common. A role adds how
// a task is written and how answers are put together.
//
// Describe and LoadAdapter have deadlines. The stream has none of its own: the
// pool bounds the time of each task on it, and keepalive finds a silent peer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/sync_stream.h"

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/adapter_stream.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/worker_pool_options.h"
#include "common/rpc/worker_session.h"
#include "common/security/role.h"
#include "dapd/v1/worker.pb.h"
#include "services/trainer/worker_handshake.h"

namespace dapd {

inline constexpr absl::Duration kDescribeTimeout = absl::Seconds(10);

// Service: v1::RolloutService or v1::TeacherService. Request and Response are
// the messages of its long stream.
template <typename Service,
          typename Task,
          typename Result,
          typename Request,
          typename Response>
class GrpcSession : public WorkerSession<Task, Result> {
 public:
  // `service`: as Describe calls it. `load_timeout`: for LoadAdapter, from the
  // first byte to the probe.
  GrpcSession(const std::string& endpoint,
              Role service,
              const RpcCredentials& credentials,
              ExpectedWorker expected,
              absl::Duration load_timeout)
      : channel_(OpenChannel(endpoint, credentials, {service})),
        stub_(channel_.ok() ? Service::NewStub(*channel_) : nullptr),
        service_(RoleName(service)),
        expected_(std::move(expected)),
        load_timeout_(load_timeout) {}

  absl::StatusOr<int64_t> Connect() override {
    RETURN_IF_ERROR(channel_.status());
    const auto context = BeginCall(kDescribeTimeout);
    v1::DescribeResponse response;
    RETURN_IF_ERROR(
        FromGrpcStatus(stub_->Describe(context.get(), {}, &response)));
    return CheckDescription(response, service_, expected_);
  }

  absl::StatusOr<uint64_t> Load(const PolicyUpdate& update) override {
    const auto context = BeginCall(load_timeout_);
    v1::LoadAdapterResponse response;
    const auto writer = stub_->LoadAdapter(context.get(), &response);
    uint64_t bytes = 0;
    const bool sent =
        SendAdapter(update, [&](const v1::LoadAdapterRequest& message) {
          bytes += message.ByteSizeLong();
          return writer->Write(message);
        });
    // After a refused Write the reason is in the status.
    if (sent) writer->WritesDone();
    RETURN_IF_ERROR(FromGrpcStatus(writer->Finish()));
    RETURN_IF_ERROR(CheckAcknowledgement(response, update));
    return bytes;
  }

  absl::Status OpenStream(const PolicyUpdate& update) override {
    update_ = &update;
    context_ = BeginCall(absl::InfiniteDuration());
    stream_ = StartStream(context_.get());
    return absl::OkStatus();
  }

  bool Send(const Task& task) override {
    return stream_->Write(ToRequest(task, *update_));
  }
  void HalfClose() override { stream_->WritesDone(); }
  void AbortStream() override { context_->TryCancel(); }
  absl::Status CloseStream() override {
    return FromGrpcStatus(stream_->Finish());
  }

  void Cancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (running_ != nullptr) running_->TryCancel();
  }

 protected:
  using Stream = grpc::ClientReaderWriter<Request, Response>;
  using Stub = typename Service::Stub;

  virtual std::unique_ptr<Stream> StartStream(grpc::ClientContext* context) = 0;
  virtual Request ToRequest(const Task& task, const PolicyUpdate& update) = 0;

  const ExpectedWorker& expected() const { return expected_; }
  const PolicyUpdate& update() const { return *update_; }
  Stub& stub() { return *stub_; }
  Stream& stream() { return *stream_; }

 private:
  // A context that Cancel reaches from now on.
  std::shared_ptr<grpc::ClientContext> BeginCall(absl::Duration timeout) {
    auto context = std::make_shared<grpc::ClientContext>();
    if (timeout != absl::InfiniteDuration()) {
      context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    }
    MutexLock lock(&mutex_);
    running_ = context;
    if (cancelled_) context->TryCancel();
    return context;
  }

  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel_;
  const std::unique_ptr<Stub> stub_;  // none: Connect says why
  const std::string service_;
  const ExpectedWorker expected_;
  const absl::Duration load_timeout_;
  const PolicyUpdate* update_ = nullptr;
  std::shared_ptr<grpc::ClientContext> context_;  // of the stream
  std::unique_ptr<Stream> stream_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<grpc::ClientContext> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace dapd
