#include "tests/fakes/torch_device/flash_attention_on_host.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "common/model/device_flash_attention.h"
#include "tests/fakes/torch_device/device_attention.h"

namespace dapd {
namespace {

constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue

int64_t simulated_devices = 0;
int64_t forwards = 0;
int64_t backwards = 0;
fake::FlashAttention3Fault fault = fake::FlashAttention3Fault::kNone;

// Returns the device's memory as a tensor on the host; checks
// FlashAttention3Rows' conditions.
at::Tensor Rows(const FlashAttention3Rows& rows,
                int64_t count,
                int64_t heads,
                int64_t d) {
  TORCH_CHECK(reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 &&
                  rows.row_stride % 8 == 0 && rows.head_stride % 8 == 0,
              "[flash_attention_on_host] rows that are not aligned");
  return at::from_blob(rows.data,
                       {count, heads, d},
                       {rows.row_stride, rows.head_stride, 1},
                       at::kBFloat16);
}

AttendedRanges SequencesOf(const FlashAttention3Args& args) {
  AttendedRanges sequences;
  for (int64_t i = 0; i < args.shape.sequences; ++i) {
    const RowRange queries{args.q_offsets[i],
                           args.q_offsets[i + 1] - args.q_offsets[i]};
    const RowRange keys{args.k_offsets[i],
                        args.k_tokens != nullptr
                            ? args.k_tokens[i]
                            : args.k_offsets[i + 1] - args.k_offsets[i]};
    TORCH_CHECK(queries.begin + queries.tokens <= args.shape.q_rows &&
                    keys.begin + keys.tokens <= args.shape.k_rows &&
                    queries.tokens <= args.shape.longest_q &&
                    keys.tokens <= args.shape.longest_k,
                "[flash_attention_on_host] a sequence lies outside");
    sequences.emplace_back(queries, keys);
  }
  return sequences;
}

// The tensors of a launch. The scale must be the one of the definition.
struct Tensors {
  at::Tensor q, k, v, out, logsumexp;
};

Tensors TensorsOf(const FlashAttention3Args& args) {
  const FlashAttention3Shape& s = args.shape;
  TORCH_CHECK(std::abs(args.scale * std::sqrt(s.head_dim) - 1) < 1e-6,
              "[flash_attention_on_host] another scale");
  return {Rows(args.q, s.q_rows, s.heads, s.head_dim),
          Rows(args.k, s.k_rows, s.kv_heads, s.head_dim),
          Rows(args.v, s.k_rows, s.kv_heads, s.head_dim),
          Rows(args.out, s.q_rows, s.heads, s.head_dim),
          at::from_blob(args.logsumexp, {s.heads, s.q_rows}, at::kFloat)};
}

int Forward(const FlashAttention3Args* args, void*) {
  if (!HasFlashAttention3(args->shape.head_dim, /*is_deterministic=*/false)) {
    return kInvalidValue;
  }
  // The kernels may leave anything there.
  std::memset(args->memory, 0x7f, ForwardMemoryOf(args->shape).bytes);
  ++forwards;
  const Tensors t = TensorsOf(*args);
  RunAttention(t.q, t.k, t.v, SequencesOf(*args), t.out, t.logsumexp);
  if (fault == fake::FlashAttention3Fault::kOutput) {
    t.out.select(0, args->shape.q_rows - 1).select(0, 0).mul_(-1);
  }
  return 0;
}

int Backward(const FlashAttention3BackwardArgs* args, void*) {
  const FlashAttention3Shape& s = args->args.shape;
  if (!HasFlashAttention3(s.head_dim, args->is_deterministic) ||
      args->args.k_tokens != nullptr) {
    return kInvalidValue;
  }
  std::memset(args->args.memory,
              0x7f,
              BackwardMemoryOf(s, args->is_deterministic).bytes);
  if (fault == fake::FlashAttention3Fault::kLaunch) return kInvalidValue;
  ++backwards;
  const Tensors t = TensorsOf(args->args);
  const AttentionGradients found =
      RunAttentionBackward(Rows(args->grad_out, s.q_rows, s.heads, s.head_dim),
                           t.q,
                           t.k,
                           t.v,
                           t.logsumexp,
                           SequencesOf(args->args));
  Rows(args->grad_q, s.q_rows, s.heads, s.head_dim).copy_(found.q);
  Rows(args->grad_k, s.k_rows, s.kv_heads, s.head_dim).copy_(found.k);
  Rows(args->grad_v, s.k_rows, s.kv_heads, s.head_dim).copy_(found.v);
  if (fault == fake::FlashAttention3Fault::kGradientK) {
    Rows(args->grad_k, s.k_rows, s.kv_heads, s.head_dim).select(0, 0).mul_(2);
  } else if (fault == fake::FlashAttention3Fault::kNoNumber) {
    Rows(args->grad_q, s.q_rows, s.heads, s.head_dim)
        .select(0, 5)
        .fill_(std::numeric_limits<float>::quiet_NaN());
  }
  return 0;
}

constexpr FlashAttention3 kKernels = {.forward = &Forward,
                                      .backward = &Backward};

}  // namespace

const FlashAttention3* FlashAttention3OfDevice() {
  return simulated_devices > 0 ? &kKernels : nullptr;
}

namespace fake {

SimulatedFlashAttention3::SimulatedFlashAttention3() {
  ++simulated_devices;
  forwards = 0;
  backwards = 0;
  fault = FlashAttention3Fault::kNone;
}

SimulatedFlashAttention3::~SimulatedFlashAttention3() { --simulated_devices; }

int64_t SimulatedFlashAttention3::TakeForwards() {
  return std::exchange(forwards, 0);
}

int64_t SimulatedFlashAttention3::TakeBackwards() {
  return std::exchange(backwards, 0);
}

void SimulatedFlashAttention3::SetFault(FlashAttention3Fault next) {
  fault = next;
}

}  // namespace fake
}  // namespace dapd
