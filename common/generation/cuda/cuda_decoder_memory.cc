#include "common/generation/cuda/cuda_decoder_memory.h"

#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/gemm.h"
#include "common/kernels/decode_attention_math.h"

namespace dapd {
namespace {

// cudaMalloc aligns to this, and no kernel needs more.
constexpr size_t kAlignment = 256;

}  // namespace

CudaDecoderMemory::CudaDecoderMemory(const CudaDecoderSpec& spec,
                                     void* workspace)
    : base(static_cast<char*>(workspace)),
      element_bytes_(spec.number == CudaNumber::kFloat32 ? 4 : 2) {
  const auto take = [&]<typename Pointer>(Pointer& pointer, int64_t size) {
    if (base != nullptr) pointer = reinterpret_cast<Pointer>(base + bytes);
    bytes +=
        (static_cast<size_t>(size) + kAlignment - 1) / kAlignment * kAlignment;
  };
  const int64_t rows = spec.max_rows;
  const auto take_rows = [&](void*& pointer, int64_t width) {
    take(pointer, rows * width * static_cast<int64_t>(element_bytes_));
  };
  const auto width = [](const CudaLinear& linear) {
    return linear.in + linear.lora;
  };
  const CudaDecoderLayer& layer = spec.layers[0];
  take_rows(x, spec.hidden);
  take_rows(attention_input, width(layer.qkv));
  take_rows(qkv, layer.qkv.out);
  take_rows(attended, width(layer.o));
  if (spec.ranks.size > 1) {
    take(parts,
         spec.ranks.size * rows * spec.hidden *
             static_cast<int64_t>(sizeof(float)));
  } else {
    take_rows(delta, spec.hidden);
  }
  take_rows(mlp_input, width(layer.gate_up));
  take_rows(gate_up, layer.gate_up.out);
  take_rows(gated, width(layer.down));
  take_rows(final_hidden, spec.hidden);
  take(logits, rows * spec.vocab * static_cast<int64_t>(sizeof(float)));
  take(attention_scratch,
       DapdCudaDecodeAttentionScratch(
           rows, spec.heads, spec.head_dim, spec.max_tokens) *
           static_cast<int64_t>(sizeof(float)));
  take(attention_counters,
       rows * spec.kv_heads * static_cast<int64_t>(sizeof(uint32_t)));
  take(sample_scratch, DapdCudaSampleScratch(rows, spec.vocab));
  take(gemm_workspace, CudaGemm::kWorkspaceBytes);
  take(positions, spec.slots * static_cast<int64_t>(sizeof(int32_t)));
  take(tokens, spec.slots * static_cast<int64_t>(sizeof(int32_t)));

  pages_per_slot = NumPages(spec.max_tokens);
  take(pages,
       spec.slots * pages_per_slot * static_cast<int64_t>(sizeof(void*)));

  const size_t first = bytes;
  take(slot_of_row, rows * static_cast<int64_t>(sizeof(int32_t)));
  take(sequences, spec.slots * static_cast<int64_t>(sizeof(CudaSequence)));
  take(sampled,
       spec.slots * kSampledRing * static_cast<int64_t>(sizeof(CudaSampled)));
  snapshot_bytes = bytes - first;
  if (base != nullptr) snapshot = base + first;
}

void* CudaDecoderMemory::Offset(void* from, int64_t elements) const {
  return static_cast<char*>(from) +
         static_cast<size_t>(elements) * element_bytes_;
}

const void* CudaDecoderMemory::Offset(const void* from,
                                      int64_t elements) const {
  return static_cast<const char*>(from) +
         static_cast<size_t>(elements) * element_bytes_;
}

CudaDecoderSnapshot CudaDecoderMemory::SnapshotAt(const char* copy) const {
  const auto* begin = static_cast<const char*>(snapshot);
  const auto at = [&]<typename T>(const T* device) {
    return reinterpret_cast<const T*>(
        copy + (reinterpret_cast<const char*>(device) - begin));
  };
  return {at(slot_of_row), at(sequences), at(sampled)};
}

}  // namespace dapd
