#include "services/teacher/teacher_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"
#include "common/base/work_mark.h"
#include "common/rpc/server/stream_writer.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/transfer/adapter_stream.h"
#include "common/rpc/transfer/chunk_stream.h"
#include "common/rpc/transfer/encoded_methods.h"
#include "services/teacher/score_request.h"

namespace dapd {
namespace {

using ScoreStream =
    grpc::ServerReaderWriter<grpc::ByteBuffer, v1::ScoreRequest>;

// Views that wait for the writer: one is being written, one is ready.
constexpr size_t kOutboxViews = 2;
// How often a writer without events checks that the client is still connected.
constexpr absl::Duration kLivenessPoll = absl::Milliseconds(500);

bool WriteScores(uint64_t request_id,
                 const ViewScores& scores,
                 ScoreStream* stream) {
  for (const auto& [name, tensor] : scores.tensors) {
    v1::ScoreResponse message;
    message.set_request_id(request_id);
    message.mutable_tensor()->set_view(ViewNameString(scores.view));
    *message.mutable_tensor()->mutable_header() =
        MakeTensorHeader(name, tensor);
    if (!stream->Write(EncodeMessage(message))) return false;
    const bool sent = SendChunks(
        {v1::ScoreResponse::kChunkFieldNumber, request_id},
        SharedBytes(tensor.data, tensor.bytes()),
        [&](const grpc::ByteBuffer& chunk) { return stream->Write(chunk); });
    if (!sent) return false;
  }
  return true;
}

void SetSpan(const TimeSpan& span, v1::TimeSpan* message) {
  message->set_begin(absl::ToUnixNanos(span.begin));
  message->set_end(absl::ToUnixNanos(span.end));
}

// `sending`: when the writer took the first event of the request.
bool WriteEvent(const TeacherEvent& event,
                absl::Time sending,
                ScoreStream* stream) {
  if (const auto* scores = std::get_if<ViewScores>(&event.content)) {
    return WriteScores(event.request_id, *scores, stream);
  }
  v1::ScoreResponse message;
  message.set_request_id(event.request_id);
  if (const auto* done = std::get_if<ScoreFinished>(&event.content)) {
    message.mutable_done()->set_policy_version(done->policy.version);
    message.mutable_done()->set_adapter_digest(done->policy.digest);
    message.mutable_done()->set_compute_seconds(done->compute_seconds);
    message.mutable_done()->set_ahead_seconds(done->ahead_seconds);
    message.mutable_done()->set_computed_tokens(
        static_cast<uint64_t>(done->work.computed_tokens));
    message.mutable_done()->set_reused_tokens(
        static_cast<uint64_t>(done->work.reused_tokens));
    v1::ScoreTimes& times = *message.mutable_done()->mutable_times();
    SetSpan(done->scored, times.mutable_scored());
    SetSpan({sending, absl::Now()}, times.mutable_sent());
    for (const TimeSpan& span : done->ahead) SetSpan(span, times.add_ahead());
  } else {
    const auto& error = std::get<absl::Status>(event.content);
    message.mutable_failed()->set_code(static_cast<int>(error.code()));
    message.mutable_failed()->set_message(WireMessage(error));
  }
  return stream->Write(EncodeMessage(message));
}

// Closes a stream's outbox once all its requests are answered and no more will
// come.
class OpenRequests {
 public:
  explicit OpenRequests(TeacherOutbox* outbox) : outbox_(outbox) {}
  void Add() {
    MutexLock lock(&mutex_);
    ++open_;
  }
  void Answered() {
    MutexLock lock(&mutex_);
    --open_;
    CloseIfDone();
  }
  void NoMore() {
    MutexLock lock(&mutex_);
    no_more_ = true;
    CloseIfDone();
  }

 private:
  void CloseIfDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (no_more_ && open_ == 0) outbox_->Close();
  }

  TeacherOutbox* const outbox_;
  Mutex mutex_;
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  bool no_more_ ABSL_GUARDED_BY(mutex_) = false;
};

// Writes until every request is answered or the client is gone; the outbox is
// then closed.
void WriteEvents(grpc::ServerContext* context,
                 ScoreStream* stream,
                 OpenRequests* open,
                 TeacherOutbox* outbox) {
  // The state of the request whose views are written; there is one at a time.
  std::optional<uint64_t> request_id;
  absl::Time sending;
  while (true) {
    const auto event = outbox->PopFor(kLivenessPoll);
    if (!event.has_value() && outbox->drained()) return;
    // A failure may arrive between the views of another request.
    if (event.has_value() && request_id != event->request_id &&
        !std::holds_alternative<absl::Status>(event->content)) {
      request_id = event->request_id;
      sending = absl::Now();
    }
    const bool alive = event.has_value() ? WriteEvent(*event, sending, stream)
                                         : !context->IsCancelled();
    if (!alive) break;
    if (event.has_value() &&
        std::holds_alternative<ScoreFinished>(event->content)) {
      MarkServed();
    }
    if (event.has_value() &&
        !std::holds_alternative<ViewScores>(event->content)) {
      if (request_id == event->request_id) request_id.reset();
      open->Answered();
    }
  }
  outbox->Close();
}

}  // namespace

TeacherService::TeacherService() {
  const std::string name = v1::TeacherService::service_full_name();
  MarkMethodStreamed(
      MethodIndex(name, "LoadAdapter"),
      EncodedReaderMethod(&worker_,
                          &AttachedWorker<TeacherWorker>::TakeAdapter));
  MarkMethodStreamed(MethodIndex(name, "Score"),
                     EncodedWriterMethod(this, &TeacherService::StreamScores));
}

grpc::Status TeacherService::Describe(grpc::ServerContext*,
                                      const v1::DescribeRequest*,
                                      v1::DescribeResponse* response) {
  return worker_.Describe(response);
}

grpc::Status TeacherService::StreamScores(grpc::ServerContext* context,
                                          ScoreStream* stream) {
  TeacherWorker* worker = worker_.get();
  if (worker == nullptr) return worker_.StillLoading();
  auto outbox = std::make_shared<TeacherOutbox>(kOutboxViews);
  OpenRequests open(outbox.get());
  StreamWriter writer(
      [&] { WriteEvents(context, stream, &open, outbox.get()); },
      [&] {
        outbox->Close();
        context->TryCancel();
      });
  absl::Status status;
  v1::ScoreRequest message;
  while (status.ok() && stream->Read(&message)) {
    if (message.has_prefix()) {
      auto update = ParsePrefixUpdate(message, worker_.description());
      status = update.status();
      if (update.ok()) worker->SubmitPrefix(*std::move(update), outbox);
      continue;
    }
    open.Add();
    absl::StatusOr<TeacherRequest> request =
        ParseScoreRequest(message, worker_.description());
    if (request.ok()) {
      worker->Submit(*std::move(request), outbox);
    } else {
      outbox->Push({message.request_id(), request.status()});
    }
  }
  open.NoMore();
  writer.Join();
  worker->CloseStream(outbox);
  return ToGrpcStatus(status);
}

}  // namespace dapd
