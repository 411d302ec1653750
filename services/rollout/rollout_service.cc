#include "services/rollout/rollout_service.h"

#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/base/status_macros.h"
#include "common/base/work_mark.h"
#include "common/generation/decode_request_message.h"
#include "common/rpc/server/stream_writer.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/transfer/adapter_stream.h"
#include "common/rpc/transfer/encoded_methods.h"

namespace dapd {
namespace {

using GenerateStream =
    grpc::ServerReaderWriter<v1::GenerateResponse, v1::GenerateRequest>;

// How often a writer without messages looks whether the client is still there.
constexpr absl::Duration kLivenessPoll = absl::Milliseconds(500);

absl::Status CheckSampling(const v1::SamplingParams& sampling) {
  if (!std::isfinite(sampling.temperature()) || sampling.temperature() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.temperature is ",
                     sampling.temperature(),
                     "; it must be 0 (greedy) or above"));
  }
  if (!(sampling.top_p() > 0 && sampling.top_p() <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sampling.top_p is ", sampling.top_p(), "; it must lie in (0, 1]"));
  }
  if (sampling.max_new_tokens() == 0) {
    return absl::InvalidArgumentError(
        "sampling.max_new_tokens is 0; at least 1 token must be asked for");
  }
  return absl::OkStatus();
}

// Reads the client's next request; returns false at the end. A client that
// sends without taking answers waits.
bool ReadRequestOf(GenerateStream* stream,
                   GenerationOutbox* outbox,
                   v1::GenerateRequest* request) {
  while (!outbox->HasRoomWithin(kLivenessPoll)) {
  }
  return stream->Read(request);
}

// Writes until all is answered or the client is gone.
void WriteMessages(grpc::ServerContext* context,
                   GenerateStream* stream,
                   RolloutWorker* worker,
                   const std::shared_ptr<GenerationOutbox>& outbox) {
  while (!outbox->done()) {
    const auto message = outbox->PopFor(kLivenessPoll);
    const bool alive =
        message.has_value() ? stream->Write(*message) : !context->IsCancelled();
    if (!alive) worker->CancelStream(outbox);
    if (alive && message.has_value() && message->has_finished()) MarkServed();
  }
}

}  // namespace

absl::StatusOr<DecodeRequest> ParseGenerateRequest(
    const v1::GenerateRequest& message, const WorkerDescription& limits) {
  RETURN_IF_ERROR(CheckSampling(message.sampling()));
  if (message.prompt_ids().empty()) {
    return absl::InvalidArgumentError("the prompt is empty");
  }
  for (int i = 0; i < message.prompt_ids_size(); ++i) {
    const int32_t id = message.prompt_ids(i);
    if (id < 0 || id >= limits.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("prompt_ids[",
                       i,
                       "] is ",
                       id,
                       ", outside the vocabulary of ",
                       limits.vocab_size));
    }
  }
  const int64_t length =
      message.prompt_ids_size() +
      static_cast<int64_t>(message.sampling().max_new_tokens());
  if (length > limits.max_positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ",
                     message.prompt_ids_size(),
                     " tokens with up to ",
                     message.sampling().max_new_tokens(),
                     " new ones does not fit the model's ",
                     limits.max_positions,
                     " positions"));
  }
  return ReadRequest(message);
}

RolloutService::RolloutService() {
  MarkMethodStreamed(
      MethodIndex(v1::RolloutService::service_full_name(), "LoadAdapter"),
      EncodedReaderMethod(&worker_,
                          &AttachedWorker<RolloutWorker>::TakeAdapter));
}

grpc::Status RolloutService::Describe(grpc::ServerContext*,
                                      const v1::DescribeRequest*,
                                      v1::DescribeResponse* response) {
  return worker_.Describe(response);
}

grpc::Status RolloutService::Generate(grpc::ServerContext* context,
                                      GenerateStream* stream) {
  RolloutWorker* worker = worker_.get();
  if (worker == nullptr) return worker_.StillLoading();
  auto outbox = std::make_shared<GenerationOutbox>();
  StreamWriter writer([&] { WriteMessages(context, stream, worker, outbox); },
                      [&] {
                        worker->CancelStream(outbox);
                        context->TryCancel();
                      });
  absl::Status status;
  v1::GenerateRequest message;
  while (ReadRequestOf(stream, outbox.get(), &message)) {
    if (!outbox->Open(message.request_id())) {
      status = absl::InvalidArgumentError(absl::StrCat(
          "request id ", message.request_id(), " is not yet answered"));
      break;
    }
    absl::StatusOr<DecodeRequest> request =
        ParseGenerateRequest(message, worker_.description());
    if (request.ok()) {
      worker->Submit(message.request_id(),
                     *std::move(request),
                     {true, message.policy_version(), message.adapter_digest()},
                     outbox);
    } else {
      outbox->Fail(message.request_id(), request.status());
    }
  }
  if (!status.ok() || context->IsCancelled()) {
    worker->CancelStream(outbox);
  } else {
    outbox->CloseWhenAnswered();
  }
  writer.Join();
  return ToGrpcStatus(status);
}

}  // namespace dapd
