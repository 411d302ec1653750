#include "services/trainer/publish/policy_update_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/tensor/torch_bridge.h"
#include "services/trainer/publish/make_policy_update.h"

namespace dapd {
namespace {

// The hash follows the writer in steps of this, so that it finds most of what
// it reads in the cache.
constexpr uint64_t kHashBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<PolicyUpdateWriter>> PolicyUpdateWriter::Start(
    const Adapter& adapter,
    int64_t version,
    const std::string& base_model_path,
    const std::vector<int32_t>& probe_ids,
    DigestKind digest_kind) {
  ASSIGN_OR_RETURN(AdapterLayout layout,
                   LayOutAdapter(adapter, base_model_path));
  auto update = std::make_shared<PolicyUpdate>();
  update->version = version;
  update->adapter.config_json = std::move(layout.config_json);
  update->adapter.tensors =
      SharedBytes(layout.buffer.data, layout.buffer.bytes());
  update->adapter.digest_kind = digest_kind;
  update->probe_ids = probe_ids;
  return std::unique_ptr<PolicyUpdateWriter>(new PolicyUpdateWriter(
      std::move(update), std::move(layout.buffer), layout.header_bytes));
}

PolicyUpdateWriter::PolicyUpdateWriter(std::shared_ptr<PolicyUpdate> update,
                                       HostTensor buffer,
                                       uint64_t header_bytes)
    : progress_(std::make_shared<UpdateProgress>()),
      update_(std::move(update)),
      buffer_(std::move(buffer)),
      written_(header_bytes),
      hasher_([this] { Hash(); }) {
  update_->progress = progress_;
  progress_->Advance(written_);
}

PolicyUpdateWriter::~PolicyUpdateWriter() { progress_->Abandon(); }

absl::Status PolicyUpdateWriter::Append(const at::Tensor& tensor) {
  ASSIGN_OR_RETURN(const HostTensor host, FromTorch(tensor));
  const absl::string_view bytes = host.bytes();
  Check(bytes.size() <= buffer_.bytes().size() - written_,
        "the adapter kept its shapes");
  std::memcpy(buffer_.data.get() + written_, bytes.data(), bytes.size());
  written_ += bytes.size();
  progress_->Advance(written_);
  return absl::OkStatus();
}

void PolicyUpdateWriter::Finish(const ModelWeights& weights,
                                const Adapter& adapter) {
  Check(written_ == buffer_.bytes().size(), "every tensor was appended");
  ProbePolicy(weights, &adapter, update_.get());
  hasher_.join();
  update_->adapter.digest = digest_;
  progress_->Finish();
}

void PolicyUpdateWriter::Hash() {
  const absl::string_view bytes = buffer_.bytes();
  ContentDigest hash(update_->adapter.digest_kind);
  for (uint64_t at = 0; at < bytes.size(); at += kHashBytes) {
    const absl::string_view part = bytes.substr(at, kHashBytes);
    if (!progress_->WaitFor(at + part.size()).ok()) return;
    hash.Update(part);
  }
  hash.Update(update_->adapter.config_json);
  digest_ = hash.HexDigest();
}

}  // namespace dapd
