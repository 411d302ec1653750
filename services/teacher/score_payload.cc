#include "services/teacher/score_payload.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/model/fast/matrix_product.h"
#include "common/model/reference/decoder.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// Returns a host tensor that can receive a tensor of `device`.
at::Tensor HostTensorFor(at::Device device,
                         at::IntArrayRef sizes,
                         at::ScalarType dtype) {
  return at::empty(
      sizes, at::TensorOptions().dtype(dtype).pinned_memory(device.is_cuda()));
}

void CopyRows(const at::Tensor& from, int64_t row, const at::Tensor& to) {
  to.narrow(0, row, from.size(0)).copy_(from, /*non_blocking=*/true);
}

// Calls `take` with the first row and the logits of each chunk of rows.
template <typename Take>
void ForEachLogits(const ModelWeights& weights,
                   const at::Tensor& hidden,
                   int64_t head_rows,
                   const Take& take) {
  for (int64_t row = 0; row < hidden.size(0); row += head_rows) {
    const int64_t count = std::min(head_rows, hidden.size(0) - row);
    at::Tensor logits = at::empty({count, weights.config.vocab_size},
                                  hidden.options().dtype(at::kFloat));
    ComputeLogits(hidden.narrow(0, row, count), weights.head, logits);
    CapLogits(ModelRecipeOf(weights.config).logit_softcap, logits);
    take(row, logits);
  }
}

PayloadTensors HiddenPayload(const at::Tensor& hidden) {
  if (hidden.is_cpu()) return {{"hidden", hidden.contiguous()}};
  const at::Tensor all =
      HostTensorFor(hidden.device(), hidden.sizes(), hidden.scalar_type());
  CopyRows(hidden, 0, all);
  return {{"hidden", all}};
}

PayloadTensors LogitsPayload(const ModelWeights& weights,
                             const at::Tensor& hidden,
                             int64_t head_rows) {
  const at::Tensor all = HostTensorFor(
      hidden.device(), {hidden.size(0), weights.config.vocab_size}, at::kFloat);
  ForEachLogits(
      weights, hidden, head_rows, [&](int64_t row, const at::Tensor& logits) {
        CopyRows(logits, row, all);
      });
  return {{"logits", all}};
}

PayloadTensors TopKPayload(const ModelWeights& weights,
                           const ScoreInput& input,
                           const at::Tensor& hidden,
                           int64_t head_rows) {
  const std::vector<int64_t> sizes = {hidden.size(0), input.top_k};
  const at::Tensor ids = HostTensorFor(hidden.device(), sizes, at::kInt);
  const at::Tensor logprobs = HostTensorFor(hidden.device(), sizes, at::kFloat);
  ForEachLogits(
      weights, hidden, head_rows, [&](int64_t row, const at::Tensor& logits) {
        const at::Tensor normalised =
            at::log_softmax(logits.div(input.temperature), /*dim=*/-1);
        const auto [values, indices] = normalised.topk(input.top_k, /*dim=*/-1);
        CopyRows(indices.to(at::kInt), row, ids);
        CopyRows(values, row, logprobs);
      });
  return {{"ids", ids}, {"logprobs", logprobs}};
}

}  // namespace

PayloadTensors StartPayload(const ModelWeights& weights,
                            const ScoreInput& input,
                            const at::Tensor& hidden,
                            int64_t head_rows) {
  switch (input.payload) {
    case Payload::kHiddenStates:
      return HiddenPayload(hidden);
    case Payload::kLogits:
      return LogitsPayload(weights, hidden, head_rows);
    case Payload::kTopK:
      return TopKPayload(weights, input, hidden, head_rows);
  }
  TORCH_CHECK(false, "[score_payload] unknown payload");
}

absl::StatusOr<ViewScores> FinishPayload(ViewName view,
                                         const PayloadTensors& tensors) {
  ViewScores scores;
  scores.view = view;
  for (const auto& [name, tensor] : tensors) {
    ASSIGN_OR_RETURN(HostTensor host, FromTorch(tensor));
    scores.tensors.emplace_back(name, std::move(host));
  }
  return scores;
}

LaunchedWork::LaunchedWork(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  event_.emplace(device.type());
  event_->record(guard.getStream(guard.getDevice()));
}

void LaunchedWork::Wait() {
  if (event_.has_value()) event_->synchronize();
}

}  // namespace dapd
