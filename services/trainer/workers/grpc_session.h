// GrpcSession: the common part of the sessions of both roles. A role adds the
// encoding of tasks and the assembly of answers.
//
// With a timeline, a session records its uploads, and reads the worker's clock
// (Describe) after it has connected and after each upload.
//
// Describe and LoadAdapter have deadlines. The stream has none: the pool limits
// the time of each task, and keepalive detects a silent peer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/sync_stream.h"

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/client/channel.h"
#include "common/rpc/pool/worker_pool_options.h"
#include "common/rpc/pool/worker_session.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/transfer/adapter_stream.h"
#include "common/rpc/transfer/encoded_methods.h"
#include "common/security/role.h"
#include "common/timeline/timeline.h"
#include "dapd/v1/worker.pb.h"
#include "services/trainer/workers/worker_handshake.h"

namespace dapd {

inline constexpr absl::Duration kDescribeTimeout = absl::Seconds(10);
// A clock reading is the best of so many calls, since the first may have to
// wait.
inline constexpr int kClockCalls = 3;

// Service: v1::RolloutService or v1::TeacherService. Request and Response are
// the messages of its long stream; grpc::ByteBuffer: encoded messages.
template <typename Service,
          typename Task,
          typename Result,
          typename Request,
          typename Response>
class GrpcSession : public WorkerSession<Task, Result> {
 public:
  // `service`: its role in Describe. `load_timeout`: for LoadAdapter, from the
  // first byte to the probe. `connections`: each carries one long stream; the
  // first also carries all other calls.
  GrpcSession(const std::string& endpoint,
              Role service,
              const RpcCredentials& credentials,
              ExpectedWorker expected,
              absl::Duration load_timeout,
              Timeline* timeline,
              int64_t connections = 1)
      : timeline_(timeline),
        peer_(timeline == nullptr ? 0
                                  : timeline->AddPeer(absl::StrCat(
                                        RoleName(service), " ", endpoint))),
        upload_track_(absl::StrCat("push to ", endpoint)),
        channel_(OpenChannel(endpoint, credentials, {service})),
        stub_(channel_.ok() ? Service::NewStub(*channel_) : nullptr),
        endpoint_(endpoint),
        service_(RoleName(service)),
        load_method_(
            absl::StrCat("/", Service::service_full_name(), "/LoadAdapter")),
        expected_(std::move(expected)),
        load_timeout_(load_timeout) {
    if (channel_.ok()) lanes_.push_back({*channel_});
    while (!lanes_.empty() &&
           static_cast<int64_t>(lanes_.size()) < connections) {
      auto another = OpenChannel(endpoint, credentials, {service});
      if (!another.ok()) break;  // fewer connections suffice
      lanes_.push_back({*std::move(another)});
    }
  }

  absl::StatusOr<WorkerGreeting> Connect() override {
    RETURN_IF_ERROR(channel_.status());
    const auto context = BeginCall(kDescribeTimeout);
    v1::DescribeResponse response;
    RETURN_IF_ERROR(
        FromGrpcStatus(stub_->Describe(context.get(), {}, &response)));
    ASSIGN_OR_RETURN(const int64_t max_in_flight,
                     CheckDescription(response, service_, expected_));
    ReadClock();
    return WorkerGreeting{
        max_in_flight, response.instance(), DescribeSkew(response, endpoint_)};
  }

  absl::StatusOr<uint64_t> Load(WeightSet set,
                                const PolicyUpdate& update) override {
    ASSIGN_OR_RETURN(const uint64_t bytes, Upload(set, update));
    ReadClock();
    return bytes;
  }

  absl::Status OpenStream(const PolicyUpdates& updates) override {
    updates_ = &updates;
    for (Lane& lane : lanes_) {
      lane.context = BeginCall(absl::InfiniteDuration());
      lane.stream = StartStream(lane.channel.get(), lane.context.get());
    }
    return absl::OkStatus();
  }

  bool Send(const Task& task) override {
    return stream(LaneOf(task.id)).Write(ToRequest(task));
  }
  void HalfClose() override {
    for (Lane& lane : lanes_) lane.stream->WritesDone();
  }
  void AbortStream() override {
    for (Lane& lane : lanes_) lane.context->TryCancel();
  }
  // With several streams, returns the end of the first stream, after which the
  // others were cancelled.
  absl::Status CloseStream() override {
    absl::Status end;
    for (Lane& lane : lanes_) {
      const absl::Status status = FromGrpcStatus(lane.stream->Finish());
      if (end.ok() || absl::IsCancelled(end)) end = status;
    }
    return end;
  }

  void Cancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    for (const auto& running : running_) {
      if (const auto context = running.lock()) context->TryCancel();
    }
  }

 protected:
  using Stream = grpc::ClientReaderWriter<Request, Response>;
  using Stub = typename Service::Stub;

  virtual std::unique_ptr<Stream> StartStream(grpc::Channel* channel,
                                              grpc::ClientContext* context) = 0;
  virtual Request ToRequest(const Task& task) = 0;

  const ExpectedWorker& expected() const { return expected_; }
  // The update of the stream that is this set of weights.
  const PolicyUpdate& update(WeightSet set) const { return *updates_->at(set); }
  Stub& stub() { return *stub_; }
  // Null: nothing is recorded.
  Timeline* timeline() { return timeline_; }
  // Returns the worker's number in the timeline.
  int peer() const { return peer_; }
  // Returns the stream of a task, which carries all its messages.
  size_t LaneOf(uint64_t task_id) const { return task_id % lanes_.size(); }
  size_t num_lanes() const { return lanes_.size(); }
  Stream& stream(size_t lane = 0) { return *lanes_[lane].stream; }

 private:
  // A connection with its long stream.
  struct Lane {
    std::shared_ptr<grpc::Channel> channel;
    std::shared_ptr<grpc::ClientContext> context;  // the stream's
    std::unique_ptr<Stream> stream;
  };

  absl::StatusOr<uint64_t> Upload(WeightSet set, const PolicyUpdate& update) {
    const ScopedSlice slice(timeline_, upload_track_.c_str(), "push");
    const auto context = BeginCall(load_timeout_);
    v1::LoadAdapterResponse response;
    const auto writer = OpenEncodedWriter(
        channel_->get(), load_method_.c_str(), context.get(), &response);
    uint64_t bytes = 0;
    const absl::Status sent =
        SendAdapter(set, update, [&](const grpc::ByteBuffer& message) {
          bytes += message.Length();
          return writer->Write(message);
        });
    if (sent.ok()) writer->WritesDone();
    if (absl::IsAborted(sent)) context->TryCancel();
    // After a refused Write, the status has the reason.
    const absl::Status taken = FromGrpcStatus(writer->Finish());
    RETURN_IF_ERROR(absl::IsAborted(sent) ? sent : taken);
    if (!sent.ok()) {
      // A worker that is satisfied before it has received everything cannot
      // know which weights it acknowledges, unless another rank has sent it the
      // update.
      if (update.key.empty()) return sent;
      RETURN_IF_ERROR(update.WaitUntilFinished());
    }
    RETURN_IF_ERROR(CheckAcknowledgement(response, set, update));
    return bytes;
  }

  void ReadClock() {
    if (timeline_ == nullptr || !timeline_->wanted()) return;
    for (int i = 0; i < kClockCalls; ++i) {
      const auto context = BeginCall(kDescribeTimeout);
      v1::DescribeResponse response;
      const absl::Time asked = absl::Now();
      const grpc::Status told = stub_->Describe(context.get(), {}, &response);
      // A later call that matters will report the error.
      if (!told.ok() || response.unix_ns() == 0) return;
      timeline_->AddReading(
          peer_, {asked, absl::FromUnixNanos(response.unix_ns()), absl::Now()});
    }
  }

  // Returns a new context, which Cancel reaches from now on.
  std::shared_ptr<grpc::ClientContext> BeginCall(absl::Duration timeout) {
    auto context = std::make_shared<grpc::ClientContext>();
    if (timeout != absl::InfiniteDuration()) {
      context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    }
    MutexLock lock(&mutex_);
    std::erase_if(running_, [](const auto& call) { return call.expired(); });
    running_.push_back(context);
    if (cancelled_) context->TryCancel();
    return context;
  }

  Timeline* const timeline_;
  const int peer_;
  const std::string upload_track_;
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel_;
  const std::unique_ptr<Stub> stub_;  // none: Connect says why
  const std::string endpoint_;
  const std::string service_;
  const std::string load_method_;
  const ExpectedWorker expected_;
  const absl::Duration load_timeout_;
  const PolicyUpdates* updates_ = nullptr;
  std::vector<Lane> lanes_;  // none: Connect says why
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<grpc::ClientContext>> running_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace dapd
