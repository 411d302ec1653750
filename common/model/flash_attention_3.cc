#include "common/model/flash_attention_3.h"

#include <cmath>
#include <cstdint>

#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

bool IsDeterministic() { return at::globalContext().deterministicAlgorithms(); }

// FlashAttention3Rows' conditions.
bool IsAligned(const at::Tensor& rows) {
  constexpr uintptr_t kBytes = 16;
  constexpr int64_t kNumbers = 8;
  return rows.stride(2) == 1 && rows.stride(1) % kNumbers == 0 &&
         rows.stride(0) % kNumbers == 0 &&
         reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % kBytes == 0;
}

bool IsTaken(const at::Tensor& rows) {
  return rows.is_cuda() && rows.scalar_type() == at::kBFloat16 &&
         rows.size(0) > 0 && IsAligned(rows) &&
         !(at::GradMode::is_enabled() && rows.requires_grad());
}

FlashAttention3Rows RowsOf(const at::Tensor& rows) {
  return {rows.data_ptr(), rows.stride(0), rows.stride(1)};
}

FlashAttention3Args ArgumentsFor(const AttentionLaunch& launch,
                                 const at::Tensor& q,
                                 const at::Tensor& k,
                                 const at::Tensor& v,
                                 const at::Tensor& out,
                                 const at::Tensor& logsumexp) {
  return {.shape = {.sequences = launch.q_offsets.size(0) - 1,
                    .q_rows = q.size(0),
                    .k_rows = k.size(0),
                    .longest_q = launch.longest_q,
                    .longest_k = launch.longest_k,
                    .heads = q.size(1),
                    .kv_heads = k.size(1),
                    .head_dim = q.size(2)},
          .q = RowsOf(q),
          .k = RowsOf(k),
          .v = RowsOf(v),
          .out = RowsOf(out),
          .logsumexp = logsumexp.data_ptr<float>(),
          .q_offsets = launch.q_offsets.const_data_ptr<int32_t>(),
          .k_offsets = launch.k_offsets.const_data_ptr<int32_t>(),
          .k_tokens = launch.k_tokens.has_value()
                          ? launch.k_tokens->const_data_ptr<int32_t>()
                          : nullptr,
          .scale = static_cast<float>(
              1.0 / std::sqrt(static_cast<double>(q.size(2))))};
}

at::Tensor MemoryOf(const at::Tensor& q, int64_t bytes) {
  return at::empty({bytes}, q.options().dtype(at::kByte));
}

}  // namespace

const FlashAttention3* FlashAttention3For(const at::Tensor& q,
                                          const at::Tensor& k,
                                          const at::Tensor& v) {
  if (!HasFlashAttention3(q.size(2), IsDeterministic()) || !IsTaken(q) ||
      !IsTaken(k) || !IsTaken(v)) {
    return nullptr;
  }
  return FlashAttention3OfDevice();
}

at::Tensor FlashAttention3Forward(const FlashAttention3& kernels,
                                  const AttentionLaunch& launch,
                                  const at::Tensor& q,
                                  const at::Tensor& k,
                                  const at::Tensor& v,
                                  at::Tensor* logsumexp) {
  at::Tensor out = at::empty_like(q, at::MemoryFormat::Contiguous);
  *logsumexp = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  FlashAttention3Args args = ArgumentsFor(launch, q, k, v, out, *logsumexp);
  const at::Tensor memory = MemoryOf(q, ForwardMemoryOf(args.shape).bytes);
  args.memory = memory.data_ptr();
  CheckLaunch(kernels.forward(&args, /*stream=*/nullptr), "attention");
  return out;
}

AttentionGradients FlashAttention3Backward(const FlashAttention3& kernels,
                                           const AttentionLaunch& launch,
                                           const at::Tensor& grad_out,
                                           const at::Tensor& q,
                                           const at::Tensor& k,
                                           const at::Tensor& v,
                                           const at::Tensor& out,
                                           const at::Tensor& logsumexp) {
  const at::Tensor grad = IsAligned(grad_out) ? grad_out : grad_out.clone();
  const AttentionGradients gradients = {
      at::empty_like(q, at::MemoryFormat::Contiguous),
      at::empty_like(k, at::MemoryFormat::Contiguous),
      at::empty_like(v, at::MemoryFormat::Contiguous)};
  FlashAttention3BackwardArgs args = {
      .args = ArgumentsFor(launch, q, k, v, out, logsumexp),
      .grad_out = RowsOf(grad),
      .grad_q = RowsOf(gradients.q),
      .grad_k = RowsOf(gradients.k),
      .grad_v = RowsOf(gradients.v),
      .is_deterministic = IsDeterministic()};
  const at::Tensor memory = MemoryOf(
      q, BackwardMemoryOf(args.args.shape, args.is_deterministic).bytes);
  args.args.memory = memory.data_ptr();
  CheckLaunch(kernels.backward(&args, /*stream=*/nullptr),
              "attention's gradient");
  return gradients;
}

}  // namespace dapd
