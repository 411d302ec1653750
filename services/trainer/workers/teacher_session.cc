#include "services/trainer/workers/teacher_session.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/rpc/transfer/chunk_message.h"
#include "common/rpc/transfer/encoded_methods.h"
#include "common/rpc/transfer/served_policy.h"
#include "common/rpc/transfer/wire_weights.h"

namespace dapd {
namespace {

constexpr char kScoreMethod[] = "/dapd.v1.TeacherService/Score";
// The most answers that wait for Receive; a reader with a further answer
// blocks.
constexpr size_t kUntakenAnswers = 4;
// The limit for ScoreTimes in teacher.proto, which limits what a worker may
// send.
constexpr int kMaxAheadSpans = 64;
// 30 years: no computation takes longer.
constexpr double kMaxSeconds = 1e9;

v1::Payload ToWirePayload(Payload payload) {
  switch (payload) {
    case Payload::kHiddenStates:
      return v1::PAYLOAD_HIDDEN_STATES;
    case Payload::kLogits:
      return v1::PAYLOAD_LOGITS;
    case Payload::kTopK:
      return v1::PAYLOAD_TOP_K;
  }
  return v1::PAYLOAD_UNSPECIFIED;
}

bool AreInVocabulary(const HostTensor& ids, int64_t vocab_size) {
  const std::span<const int32_t> all(
      reinterpret_cast<const int32_t*>(ids.data.get()),
      static_cast<size_t>(ids.num_elements()));
  return std::ranges::all_of(
      all, [&](int32_t id) { return id >= 0 && id < vocab_size; });
}

// Another worker may send correctly what this worker sent wrong.
absl::Status Broken(const absl::Status& status) {
  return status.ok() ? status : absl::DataLossError(status.message());
}

}  // namespace

absl::Status TeacherSession::OpenStream(const PolicyUpdates& updates) {
  {
    MutexLock lock(&mutex_);
    partial_.clear();
  }
  prefixes_.clear();
  half_closed_ = false;
  RETURN_IF_ERROR(TeacherSessionBase::OpenStream(updates));
  answers_ =
      std::make_unique<BoundedQueue<TaskAnswer<ScoreResult>>>(kUntakenAnswers);
  reading_ = num_lanes();
  for (size_t lane = 0; lane < num_lanes(); ++lane) {
    readers_.emplace_back([this, lane] { Read(lane); });
  }
  return absl::OkStatus();
}

void TeacherSession::HalfClose() {
  half_closed_ = true;
  TeacherSessionBase::HalfClose();
}

absl::Status TeacherSession::CloseStream() {
  readers_.clear();
  return TeacherSessionBase::CloseStream();
}

std::unique_ptr<TeacherSession::Stream> TeacherSession::StartStream(
    grpc::Channel* channel, grpc::ClientContext* context) {
  return OpenEncodedReader<v1::ScoreRequest>(channel, kScoreMethod, context);
}

v1::ScoreRequest TeacherSession::BeginRequest(const ScoreTask& task) const {
  v1::ScoreRequest request;
  request.set_request_id(task.id);
  request.set_weights(ToWireWeights(task.weights));
  if (task.weights != WeightSet::kBase) {
    request.set_policy_version(update(task.weights).version);
    request.set_adapter_digest(update(task.weights).adapter.digest);
  }
  return request;
}

v1::ScoreRequest TeacherSession::ToRequest(const ScoreTask& task) {
  prefixes_.erase(task.id);
  v1::ScoreRequest request = BeginRequest(task);
  request.set_payload(ToWirePayload(task.payload));
  request.set_top_k(static_cast<uint32_t>(task.top_k));
  request.set_temperature(task.temperature);
  for (const auto& [name, view] : task.views) {
    v1::ScoreView& message = *request.add_views();
    message.set_name(ViewNameString(name));
    message.mutable_input_ids()->Add(view.input_ids.begin(),
                                     view.input_ids.end());
    message.set_scored_from(static_cast<uint32_t>(view.scored_from));
    message.set_scored_count(static_cast<uint32_t>(view.scored_count));
  }
  Partial partial = Expect(task);
  MutexLock lock(&mutex_);
  partial_.emplace(task.id, std::move(partial));
  return request;
}

bool TeacherSession::SendPrefix(const ScoreTask& partial) {
  v1::ScoreRequest request = BeginRequest(partial);
  std::map<ViewName, size_t>& sent_tokens = prefixes_[partial.id];
  for (const auto& [name, view] : partial.views) {
    size_t& sent = sent_tokens[name];
    if (view.input_ids.size() <= sent) continue;
    v1::ViewPrefix& message = *request.mutable_prefix()->add_views();
    message.set_name(ViewNameString(name));
    message.set_first_index(static_cast<uint32_t>(sent));
    message.mutable_input_ids()->Add(
        view.input_ids.begin() + static_cast<int64_t>(sent),
        view.input_ids.end());
    sent = view.input_ids.size();
  }
  if (!request.has_prefix()) return true;
  const ScopedSlice slice(timeline(), news_track_.c_str(), "prefix news");
  return stream(LaneOf(partial.id)).Write(request);
}

bool TeacherSession::WithdrawPrefix(uint64_t id) {
  if (prefixes_.erase(id) == 0) return true;
  v1::ScoreRequest request = BeginRequest(ScoreTask{.id = id});
  request.mutable_prefix();
  return stream(LaneOf(id)).Write(request);
}

TeacherSession::Partial TeacherSession::Expect(const ScoreTask& task) const {
  Partial partial;
  partial.weights = task.weights;
  partial.result.id = task.id;
  for (const auto& [name, view] : task.views) {
    const int64_t rows = view.scored_count;
    switch (task.payload) {
      case Payload::kHiddenStates:
        partial.missing[{name, "hidden"}] = {
            expected().precision == NameOf(Precision::kBfloat16)
                ? DType::kBFloat16
                : DType::kFloat32,
            {rows, expected().hidden_size}};
        break;
      case Payload::kLogits:
        partial.missing[{name, "logits"}] = {DType::kFloat32,
                                             {rows, expected().vocab_size}};
        break;
      case Payload::kTopK:
        partial.missing[{name, "ids"}] = {DType::kInt32, {rows, task.top_k}};
        partial.missing[{name, "logprobs"}] = {DType::kFloat32,
                                               {rows, task.top_k}};
        break;
    }
  }
  return partial;
}

template <typename Chunk>
absl::Status TeacherSession::AddChunk(const Chunk& chunk,
                                      Partial& partial) const {
  if (!partial.tensor.has_value()) {
    return absl::DataLossError("a chunk before its tensor's header");
  }
  return partial.tensor->Add(chunk);
}

std::optional<TaskAnswer<ScoreResult>> TeacherSession::Receive() {
  return answers_->Pop();
}

void TeacherSession::Read(size_t lane) {
  grpc::ByteBuffer message;
  while (stream(lane).Read(&message)) {
    auto answer = Add(lane, message);
    if (answer.has_value()) answers_->Push(*std::move(answer));
    message.Clear();
  }
  // If a stream of a session ends, the others end, too.
  if (!half_closed_) AbortStream();
  if (--reading_ == 0) answers_->Close();
}

std::optional<TaskAnswer<ScoreResult>> TeacherSession::Add(
    size_t lane, grpc::ByteBuffer& message) {
  const std::optional<ReceivedChunk> chunk =
      FindChunk(message, v1::ScoreResponse::kChunkFieldNumber);
  v1::ScoreResponse response;
  if (!chunk.has_value() && !DecodeMessage(message, &response)) {
    return TaskAnswer<ScoreResult>{
        0, absl::DataLossError("an answer that is not a ScoreResponse")};
  }
  const uint64_t id =
      chunk.has_value() ? chunk->request_id : response.request_id();
  Partial* partial = nullptr;
  if (LaneOf(id) == lane) {
    MutexLock lock(&mutex_);
    const auto found = partial_.find(id);
    if (found != partial_.end()) partial = &found->second;
  }
  if (partial == nullptr) {
    return TaskAnswer<ScoreResult>{
        id,
        absl::DataLossError(absl::StrCat(
            "an answer to task ", id, ", which the worker was not given"))};
  }
  std::optional<absl::StatusOr<ScoreResult>> answer;
  if (chunk.has_value()) {
    const absl::Status status = Broken(AddChunk(*chunk, *partial));
    if (!status.ok()) answer = status;
  } else {
    answer = Add(response, *partial);
  }
  if (!answer.has_value()) return std::nullopt;
  if (timeline() != nullptr && answer->ok()) {
    Record(response.done().times(), **answer);
  }
  MutexLock lock(&mutex_);
  partial_.erase(id);
  return TaskAnswer<ScoreResult>{id, *std::move(answer)};
}

std::optional<absl::StatusOr<ScoreResult>> TeacherSession::Add(
    const v1::ScoreResponse& response, Partial& partial) const {
  absl::Status status;
  switch (response.event_case()) {
    case v1::ScoreResponse::kTensor:
      status = Broken(AddHeader(response.tensor(), partial));
      break;
    case v1::ScoreResponse::kChunk:
      status = Broken(AddChunk(response.chunk(), partial));
      break;
    case v1::ScoreResponse::kDone:
      return Finish(response.done(), partial);
    case v1::ScoreResponse::kFailed:
      status =
          FromWireError(response.failed().code(), response.failed().message());
      break;
    case v1::ScoreResponse::EVENT_NOT_SET:
      status = absl::DataLossError("an answer without content");
      break;
  }
  if (status.ok()) return std::nullopt;
  return status;
}

absl::Status TeacherSession::AddHeader(const v1::ScoredTensor& message,
                                       Partial& partial) const {
  const v1::TensorHeader& header = message.header();
  const absl::StatusOr<ViewName> view = ParseViewName(message.view());
  const auto expected = view.ok() ? partial.missing.find({*view, header.name()})
                                  : partial.missing.end();
  if (expected == partial.missing.end()) {
    return absl::DataLossError(absl::StrCat("tensor '",
                                            header.name(),
                                            "' of view '",
                                            message.view(),
                                            "' was not asked for"));
  }
  if (partial.tensor.has_value() && !partial.tensor->complete()) {
    return absl::DataLossError(absl::StrCat(
        "tensor '", partial.tensor->name(), "' ended before its last chunk"));
  }
  const std::vector<int64_t> shape(header.shape().begin(),
                                   header.shape().end());
  if (header.dtype() != ToWireType(expected->second.dtype) ||
      shape != expected->second.shape) {
    return absl::DataLossError(absl::StrCat(
        "tensor '",
        header.name(),
        "' of view '",
        message.view(),
        "' has a different shape or dtype from what was asked for"));
  }
  ASSIGN_OR_RETURN(const int64_t elements,
                   CheckedNumElements(shape, expected->second.dtype));
  const auto bytes =
      static_cast<uint64_t>(elements * DTypeBytes(expected->second.dtype));
  ASSIGN_OR_RETURN(TensorAssembler assembler,
                   TensorAssembler::Start(header, bytes));
  partial.missing.erase(expected);
  partial.result.payload_bytes += bytes;
  partial.result.views[*view][header.name()] = assembler.tensor();
  partial.tensor.emplace(std::move(assembler));
  return absl::OkStatus();
}

absl::Status TeacherSession::CheckValues(const ScoreResult& result) const {
  for (const auto& [view, tensors] : result.views) {
    for (const auto& [name, tensor] : tensors) {
      const char* what = nullptr;
      if (!AllFinite(tensor)) {
        what = "a number that is not finite";
      } else if (tensor.dtype == DType::kInt32 &&
                 !AreInVocabulary(tensor, expected().vocab_size)) {
        what = "an id outside the vocabulary";
      }
      if (what == nullptr) continue;
      return absl::DataLossError(absl::StrCat("tensor '",
                                              name,
                                              "' of view '",
                                              ViewNameString(view),
                                              "' holds ",
                                              what));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ScoreResult> TeacherSession::Finish(const v1::ScoreDone& done,
                                                   Partial& partial) const {
  if (partial.weights != WeightSet::kBase) {
    const PolicyUpdate& asked = update(partial.weights);
    if (done.policy_version() != asked.version ||
        done.adapter_digest() != asked.adapter.digest) {
      return absl::FailedPreconditionError(
          absl::StrCat("scored by the ",
                       NameOf(partial.weights),
                       " adapter of ",
                       PolicyName(done.policy_version(), done.adapter_digest()),
                       ", but the request was for the adapter of ",
                       PolicyName(asked.version, asked.adapter.digest)));
    }
  }
  if (!partial.missing.empty() ||
      (partial.tensor.has_value() && !partial.tensor->complete())) {
    return absl::DataLossError(
        absl::StrCat(partial.missing.size(),
                     " tensors of the answer, or the end of one, are missing"));
  }
  RETURN_IF_ERROR(CheckValues(partial.result));
  for (const double seconds : {done.compute_seconds(), done.ahead_seconds()}) {
    // The comparison is negated, so that a NaN counts as too much.
    if (!(std::abs(seconds) <= kMaxSeconds)) {
      return absl::DataLossError(
          absl::StrCat("an answer that took ", seconds, " seconds"));
    }
  }
  partial.result.compute_seconds = done.compute_seconds();
  partial.result.ahead_seconds = done.ahead_seconds();
  partial.result.computed_tokens = static_cast<int64_t>(done.computed_tokens());
  partial.result.reused_tokens = static_cast<int64_t>(done.reused_tokens());
  return std::move(partial.result);
}

void TeacherSession::Record(const v1::ScoreTimes& times,
                            const ScoreResult& result) {
  if (times.ahead_size() > kMaxAheadSpans || !times.has_scored() ||
      !times.has_sent()) {
    return;
  }
  const auto add = [&](const std::string& track,
                       const char* name,
                       const v1::TimeSpan& span,
                       std::vector<std::pair<std::string, int64_t>> facts) {
    facts.emplace_back("task", static_cast<int64_t>(result.id));
    timeline()->Add(peer(),
                    track,
                    {.name = name,
                     .begin = absl::FromUnixNanos(span.begin()),
                     .end = absl::FromUnixNanos(span.end()),
                     .facts = std::move(facts)});
  };
  for (const v1::TimeSpan& span : times.ahead()) {
    add(kComputeTrack, "prefix", span, {});
  }
  add(kComputeTrack,
      "score",
      times.scored(),
      {{"computed_tokens", result.computed_tokens},
       {"reused_tokens", result.reused_tokens}});
  add(absl::StrCat("connection ", LaneOf(result.id)),
      "payload",
      times.sent(),
      {{"bytes", static_cast<int64_t>(result.payload_bytes)}});
}

}  // namespace dapd
