#include "services/trainer/publish/policy_update_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/rpc/transfer/chunk_stream.h"
#include "common/tensor/torch_bridge.h"
#include "services/trainer/publish/make_policy_update.h"

namespace dapd {
namespace {

// The hash follows the writer in steps of this size, so that it reads mostly
// from the cache.
constexpr uint64_t kHashBytes = 1 << 20;

// Returns a page-locked buffer.
absl::StatusOr<HostTensor> TakeBuffer(SideStream& side, int64_t bytes) {
  HostTensor buffer;
  RETURN_IF_ERROR(CatchTorch([&] {
    const at::Tensor tensor = side.HostBuffer(bytes);
    buffer.dtype = DType::kUInt8;
    buffer.shape = {bytes};
    // The deleter's copy keeps the storage.
    buffer.data = std::shared_ptr<char>(static_cast<char*>(tensor.data_ptr()),
                                        [tensor](char*) {});
    return absl::OkStatus();
  }));
  return buffer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PolicyUpdateWriter>> PolicyUpdateWriter::Start(
    const Adapter& adapter,
    int64_t version,
    const std::string& key,
    const std::vector<int32_t>& probe_ids,
    DigestKind digest_kind,
    SideStream* side) {
  AllocateBytes allocate;
  if (side != nullptr) {
    allocate = [side](int64_t bytes) { return TakeBuffer(*side, bytes); };
  }
  ASSIGN_OR_RETURN(AdapterLayout layout,
                   LayOutAdapter(adapter, /*base_model_path=*/"", allocate));
  auto update = std::make_shared<PolicyUpdate>();
  update->version = version;
  update->key = key;
  update->adapter.config_json = std::move(layout.config_json);
  update->adapter.tensors =
      SharedBytes(layout.buffer.data, layout.buffer.bytes());
  update->adapter.digest_kind = digest_kind;
  update->checksums = std::make_shared<ChunkChecksums>(
      NumChunks(update->adapter.tensors.size()));
  update->probe_ids = probe_ids;
  return std::unique_ptr<PolicyUpdateWriter>(new PolicyUpdateWriter(
      std::move(update), std::move(layout.buffer), layout.header_bytes, side));
}

PolicyUpdateWriter::PolicyUpdateWriter(std::shared_ptr<PolicyUpdate> update,
                                       HostTensor buffer,
                                       uint64_t header_bytes,
                                       SideStream* side)
    : progress_(std::make_shared<UpdateProgress>()),
      update_(std::move(update)),
      buffer_(std::move(buffer)),
      header_bytes_(header_bytes),
      side_(side),
      written_(header_bytes),
      hasher_([this] { Hash(); }) {
  update_->progress = progress_;
  progress_->Advance(written_);
}

PolicyUpdateWriter::~PolicyUpdateWriter() {
  progress_->Abandon();
  if (!has_begun_copy_) copied_.set_value(nullptr);
}

absl::Status PolicyUpdateWriter::Append(const at::Tensor& tensor) {
  Check(tensor.nbytes() <= buffer_.bytes().size() - written_,
        "the adapter kept its shapes");
  if (side_ == nullptr) return AppendFromHost(tensor);
  appended_.push_back(tensor.detach().flatten());
  written_ += tensor.nbytes();
  return written_ < buffer_.bytes().size() ? absl::OkStatus() : StartCopy();
}

absl::Status PolicyUpdateWriter::AppendFromHost(const at::Tensor& tensor) {
  ASSIGN_OR_RETURN(const HostTensor host, FromTorch(tensor));
  const absl::string_view bytes = host.bytes();
  std::memcpy(buffer_.data.get() + written_, bytes.data(), bytes.size());
  written_ += bytes.size();
  progress_->Advance(written_);
  return absl::OkStatus();
}

absl::Status PolicyUpdateWriter::StartCopy() {
  return CatchTorch([this] {
    flat_ = at::cat(appended_);
    appended_.clear();
    const at::Tensor target = ToTorch(buffer_)
                                  .narrow(0,
                                          static_cast<int64_t>(header_bytes_),
                                          static_cast<int64_t>(flat_.nbytes()))
                                  .view(at::kFloat);
    const auto complete = side_->Mark();
    const auto scope = side_->Enter();
    complete->HoldStream();
    side_->Copy(flat_, target);
    auto copied = side_->Mark();
    has_begun_copy_ = true;
    copied_.set_value(std::move(copied));
    return absl::OkStatus();
  });
}

absl::Status PolicyUpdateWriter::WaitForCopy() {
  const std::unique_ptr<StreamPoint> copied = copied_.get_future().get();
  if (copied == nullptr) return absl::AbortedError("the copy was abandoned");
  RETURN_IF_ERROR(CatchTorch([&] {
    copied->Wait();
    return absl::OkStatus();
  }));
  progress_->Advance(buffer_.bytes().size());
  return absl::OkStatus();
}

absl::Status PolicyUpdateWriter::Finish(const ModelWeights& weights,
                                        const Adapter& adapter) {
  Check(written_ == buffer_.bytes().size(), "every tensor was appended");
  ProbePolicy(weights, &adapter, update_.get());
  hasher_.join();
  RETURN_IF_ERROR(outcome_);
  flat_ = at::Tensor();
  update_->adapter.digest = digest_;
  progress_->Finish();
  return absl::OkStatus();
}

void PolicyUpdateWriter::Hash() {
  if (side_ != nullptr) {
    outcome_ = WaitForCopy();
    if (!outcome_.ok()) {
      progress_->Abandon();
      return;
    }
  }
  const absl::string_view bytes = buffer_.bytes();
  ContentDigest hash(update_->adapter.digest_kind);
  for (uint64_t at = 0; at < bytes.size(); at += kHashBytes) {
    const absl::string_view part = bytes.substr(at, kHashBytes);
    outcome_ = progress_->WaitFor(at + part.size());
    if (!outcome_.ok()) return;
    hash.Update(part);
  }
  hash.Update(update_->adapter.config_json);
  digest_ = hash.HexDigest();
}

}  // namespace dapd
