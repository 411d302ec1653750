#include "common/rpc/transfer/adapter_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/transfer/wire_weights.h"

namespace dapd {
namespace {

// adapter_config.json is a few hundred bytes.
constexpr size_t kMaxConfigBytes = 64 << 10;
constexpr int64_t kMaxProbeIds = 1024;
constexpr size_t kMaxKeyBytes = 200;

absl::Status CheckProbe(const v1::AdapterHeader& header,
                        const AdapterLimits& limits) {
  if (header.probe_ids_size() < 2 ||
      header.probe_ids_size() > limits.max_probe_ids) {
    return absl::InvalidArgumentError(absl::StrCat("the probe has ",
                                                   header.probe_ids_size(),
                                                   " tokens; 2 to ",
                                                   limits.max_probe_ids,
                                                   " are allowed"));
  }
  for (const int32_t id : header.probe_ids()) {
    if (id < 0 || id >= limits.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("probe token ",
                       id,
                       " is outside the vocabulary of ",
                       limits.vocab_size));
    }
  }
  return absl::OkStatus();
}

// Returns the set that a header names, or the first set of `limits`.
absl::StatusOr<WeightSet> ReadSet(const v1::AdapterHeader& header,
                                  const AdapterLimits& limits) {
  if (header.weights() == v1::TEACHER_WEIGHTS_UNSPECIFIED) {
    return limits.weight_sets.front();
  }
  ASSIGN_OR_RETURN(const WeightSet set, FromWireWeights(header.weights()));
  if (std::ranges::count(limits.weight_sets, set) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this worker does not keep an adapter as its ", NameOf(set)));
  }
  if (set == WeightSet::kBase && header.total_bytes() > 0) {
    return absl::InvalidArgumentError("the base cannot take an adapter");
  }
  return set;
}

absl::StatusOr<DigestKind> ReadDigestKind(const v1::AdapterHeader& header) {
  switch (header.digest_kind()) {
    case v1::DIGEST_KIND_SHA256:
      return DigestKind::kSha256;
    case v1::DIGEST_KIND_XXH3_128:
      return DigestKind::kXxh3;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "digest kind ",
          static_cast<int>(header.digest_kind()),
          " is unknown; start this worker with the trainer's version"));
  }
}

v1::DigestKind ToWireDigestKind(DigestKind kind) {
  return kind == DigestKind::kXxh3 ? v1::DIGEST_KIND_XXH3_128
                                   : v1::DIGEST_KIND_SHA256;
}

void FillAdapterState(WeightSet set,
                      const ServedPolicy& served,
                      v1::AdapterState* state) {
  state->set_weights(ToWireWeights(set));
  state->set_loaded(served.loaded);
  state->set_policy_version(served.version);
  state->set_digest(served.digest);
}

}  // namespace

absl::Status SendAdapter(
    WeightSet set,
    const PolicyUpdate& update,
    const std::function<bool(const grpc::ByteBuffer&)>& send) {
  const absl::Status refused =
      absl::CancelledError("the worker accepts no more of the adapter");
  v1::LoadAdapterRequest first;
  v1::AdapterHeader& header = *first.mutable_header();
  header.set_weights(ToWireWeights(set));
  header.set_policy_version(update.version);
  header.mutable_probe_ids()->Add(update.probe_ids.begin(),
                                  update.probe_ids.end());
  header.set_update_key(update.key);
  const SharedBytes& tensors = update.adapter.tensors;
  if (!update.is_base) {
    header.set_config_json(update.adapter.config_json);
    header.set_total_bytes(tensors.size());
    header.set_digest_kind(ToWireDigestKind(update.adapter.digest_kind));
  }
  if (!send(EncodeMessage(first))) return refused;
  if (update.is_base) return absl::OkStatus();
  const ChunkEnvelope envelope{v1::LoadAdapterRequest::kChunkFieldNumber};
  for (uint64_t offset = 0; offset < tensors.size(); offset += kChunkBytes) {
    const SharedBytes part = tensors.Part(offset, kChunkBytes);
    RETURN_IF_ERROR(update.WaitFor(offset + part.size()));
    const uint32_t crc32c =
        update.checksums == nullptr
            ? Crc32c(part.view())
            : update.checksums->Of(offset / kChunkBytes, part.view());
    if (!send(EncodeChunk(envelope, offset, part, crc32c))) return refused;
  }
  RETURN_IF_ERROR(update.WaitUntilFinished());
  v1::LoadAdapterRequest last;
  last.mutable_end()->set_digest(update.adapter.digest);
  return send(EncodeMessage(last)) ? absl::OkStatus() : refused;
}

AdapterLimits LimitsOf(const WorkerDescription& description) {
  return {.max_bytes = description.max_adapter_bytes,
          .max_probe_ids = std::min(description.max_positions, kMaxProbeIds),
          .vocab_size = description.vocab_size,
          .weight_sets = description.weight_sets};
}

AdapterUpload AdapterReceiver::AsServed() const {
  return {.set = upload_.set,
          .version = upload_.version,
          .probe_ids = upload_.probe_ids,
          .key = upload_.key,
          .is_served = true};
}

absl::Status AdapterReceiver::Add(grpc::ByteBuffer& message) {
  const std::optional<ReceivedChunk> chunk =
      FindChunk(message, v1::LoadAdapterRequest::kChunkFieldNumber);
  if (chunk.has_value()) return AddChunk(*chunk);
  v1::LoadAdapterRequest request;
  if (!DecodeMessage(message, &request)) {
    return absl::InvalidArgumentError("a message is not a LoadAdapterRequest");
  }
  return Add(request);
}

absl::Status AdapterReceiver::Add(const v1::LoadAdapterRequest& request) {
  switch (request.part_case()) {
    case v1::LoadAdapterRequest::kHeader:
      return Start(request.header());
    case v1::LoadAdapterRequest::kChunk:
      return AddChunk(request.chunk());
    case v1::LoadAdapterRequest::kEnd:
      return End(request.end());
    case v1::LoadAdapterRequest::PART_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "LoadAdapterRequest holds neither header, chunk nor end");
}

absl::Status AdapterReceiver::Start(const v1::AdapterHeader& header) {
  if (started_) return absl::InvalidArgumentError("second adapter header");
  RETURN_IF_ERROR(CheckProbe(header, limits_));
  if (header.policy_version() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "policy version ", header.policy_version(), " is negative"));
  }
  ASSIGN_OR_RETURN(upload_.set, ReadSet(header, limits_));
  ASSIGN_OR_RETURN(upload_.adapter.digest_kind, ReadDigestKind(header));
  started_ = true;
  upload_.version = header.policy_version();
  upload_.is_base = header.total_bytes() == 0;
  upload_.probe_ids.assign(header.probe_ids().begin(),
                           header.probe_ids().end());
  if (upload_.is_base) return absl::OkStatus();
  if (header.total_bytes() > limits_.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("an adapter of ",
                     header.total_bytes(),
                     " bytes; this model's with this worker's lora.rank has at "
                     "most ",
                     limits_.max_bytes,
                     ": give trainer and worker the same configuration"));
  }
  if (header.config_json().size() > kMaxConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("an adapter configuration of ",
                     header.config_json().size(),
                     " bytes; at most ",
                     kMaxConfigBytes));
  }
  if (header.update_key().size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat("an update's key of ",
                                                   header.update_key().size(),
                                                   " bytes; at most ",
                                                   kMaxKeyBytes,
                                                   " are allowed"));
  }
  total_bytes_ = header.total_bytes();
  upload_.key = header.update_key();
  upload_.adapter.config_json = header.config_json();
  return absl::OkStatus();
}

// Runs at the first chunk, because an upload that is not read has no chunk.
absl::Status AdapterReceiver::Allocate() {
  ASSIGN_OR_RETURN(const HostTensor buffer,
                   HostTensor::AllocateRecurring(
                       DType::kUInt8, {static_cast<int64_t>(total_bytes_)}));
  upload_.adapter.tensors = SharedBytes(buffer.data, buffer.bytes());
  chunks_.emplace(buffer.data.get(), total_bytes_, "adapter");
  digest_.emplace(upload_.adapter.digest_kind);
  return absl::OkStatus();
}

template <typename Chunk>
absl::Status AdapterReceiver::AddChunk(const Chunk& chunk) {
  if (total_bytes_ == 0 || ended_) {
    return absl::InvalidArgumentError(
        "adapter chunk before the header, or after the end");
  }
  if (!chunks_.has_value()) RETURN_IF_ERROR(Allocate());
  const uint64_t before = chunks_->received();
  RETURN_IF_ERROR(chunks_->Add(chunk));
  digest_->Update(
      upload_.adapter.tensors.Part(before, chunks_->received() - before)
          .view());
  return absl::OkStatus();
}

absl::Status AdapterReceiver::End(const v1::AdapterEnd& end) {
  if (total_bytes_ == 0 || ended_) {
    return absl::InvalidArgumentError(
        "adapter end before the header, or a second one");
  }
  ended_ = true;
  upload_.adapter.digest = end.digest();
  return absl::OkStatus();
}

absl::StatusOr<AdapterUpload> AdapterReceiver::Finish() {
  if (!started_) return absl::DataLossError("no adapter header arrived");
  if (upload_.is_base) return std::move(upload_);
  const uint64_t received = chunks_.has_value() ? chunks_->received() : 0;
  if (received < total_bytes_ || !ended_) {
    return absl::DataLossError(absl::StrCat("the adapter ended after ",
                                            received,
                                            " of ",
                                            total_bytes_,
                                            " bytes, or without its digest"));
  }
  digest_->Update(upload_.adapter.config_json);
  if (const std::string digest = digest_->HexDigest();
      digest != upload_.adapter.digest) {
    return absl::DataLossError(
        absl::StrCat("the adapter's ",
                     DigestKindName(upload_.adapter.digest_kind),
                     " is ",
                     digest,
                     ", its sender says ",
                     upload_.adapter.digest));
  }
  upload_.adapter.verified = true;
  return std::move(upload_);
}

absl::StatusOr<AdapterUpload> ReceiveAdapter(
    AdapterReceiver& receiver,
    const std::function<bool(grpc::ByteBuffer*)>& read) {
  grpc::ByteBuffer message;
  while (read(&message)) {
    RETURN_IF_ERROR(receiver.Add(message));
    message.Clear();
  }
  return receiver.Finish();
}

v1::DescribeResponse MakeDescribeResponse(const WorkerDescription& description,
                                          const ServedWeights& served) {
  v1::DescribeResponse response;
  response.set_service(description.service);
  response.set_version(Version());
  response.set_layout_digest(description.layout_digest);
  response.set_precision(description.precision);
  response.set_vocab_size(description.vocab_size);
  response.set_hidden_size(description.hidden_size);
  response.set_max_positions(description.max_positions);
  response.set_max_in_flight(static_cast<uint32_t>(description.max_in_flight));
  response.set_teacher(description.teacher);
  response.set_teacher_digest(description.teacher_digest);
  const WeightSet usual = description.weight_sets.front();
  FillAdapterState(usual, served.Of(usual), response.mutable_adapter());
  for (const auto& [set, policy] : served.Loaded()) {
    FillAdapterState(set, policy, response.add_weight_sets());
  }
  response.set_unix_ns(absl::ToUnixNanos(absl::Now()));
  response.set_instance(description.instance);
  return response;
}

v1::LoadAdapterResponse MakeLoadAdapterResponse(const LoadResult& loaded) {
  v1::LoadAdapterResponse response;
  FillAdapterState(loaded.set, loaded.served, response.mutable_adapter());
  response.set_modules_applied(loaded.applied.modules_applied);
  response.mutable_probe_logprobs()->Add(loaded.applied.probe_logprobs.begin(),
                                         loaded.applied.probe_logprobs.end());
  return response;
}

}  // namespace dapd
