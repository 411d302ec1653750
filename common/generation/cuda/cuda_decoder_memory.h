// The buffers of a CudaDecoder, cut out of one piece of device memory. T is the
// spec's number type; R is max_rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/generation/cuda/cuda_decoder.h"

namespace dapd {

// The state that the host reads after the steps with one copy.
struct CudaDecoderSnapshot {
  const int32_t* slot_of_row = nullptr;     // [R]
  const CudaSequence* sequences = nullptr;  // [slots]
  const CudaSampled* sampled = nullptr;     // [slots, kSampledRing]
};

struct CudaDecoderMemory {
  // `workspace` has DapdCudaDecoderWorkspace bytes, aligned to 256. If it is
  // null, only `bytes` has a meaning.
  CudaDecoderMemory(const CudaDecoderSpec& spec, void* workspace);

  // Returns the address `elements` T after `from`.
  void* Offset(void* from, int64_t elements) const;
  const void* Offset(const void* from, int64_t elements) const;
  // Interprets a copy of the snapshot's bytes.
  CudaDecoderSnapshot SnapshotAt(const char* copy) const;

  char* base = nullptr;
  size_t bytes = 0;

  // Activations. The columns after a linear layer's `in` are for its adapter.
  void* x = nullptr;                // [R, hidden]
  void* attention_input = nullptr;  // [R, qkv.in + qkv.lora]
  void* qkv = nullptr;              // [R, qkv.out]
  void* attended = nullptr;         // [R, o.in + o.lora]
  void* delta = nullptr;            // [R, hidden]; with several ranks it is
                                    // null, and
  float* parts = nullptr;           // this is used: [ranks, R, hidden]
  void* mlp_input = nullptr;        // [R, gate_up.in + gate_up.lora]
  void* gate_up = nullptr;          // [R, gate_up.out]
  void* gated = nullptr;            // [R, down.in + down.lora]
  void* final_hidden = nullptr;     // [R, hidden]
  float* logits = nullptr;          // [R, vocab]
  float* attention_scratch = nullptr;
  uint32_t* attention_counters = nullptr;  // [R, kv_heads]
  void* sample_scratch = nullptr;
  void* gemm_workspace = nullptr;
  int32_t* positions = nullptr;  // [slots]
  int32_t* tokens = nullptr;     // [slots]
  void** pages = nullptr;        // [slots, pages_per_slot]
  int64_t pages_per_slot = 0;

  void* snapshot = nullptr;  // the next three buffers
  size_t snapshot_bytes = 0;
  int32_t* slot_of_row = nullptr;
  CudaSequence* sequences = nullptr;
  CudaSampled* sampled = nullptr;

 private:
  size_t element_bytes_ = 0;
};

}  // namespace dapd
