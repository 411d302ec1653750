// Keeps the bursts of steps that a decoder has launched and the host has not
// read yet, at most kMaxBursts. Each burst ends with a copy of the decoder's
// state to pinned memory, so that the host reads the result of one burst while
// the next burst runs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/collective/nccl_api.h"
#include "common/generation/cuda/cuda_decoder.h"
#include "common/generation/cuda/cuda_decoder_memory.h"
#include "common/generation/cuda/cuda_outcome.h"

namespace dapd {

// All calls must use the same stream. With several `ranks`, a wait also ends
// with an error when the other ranks do not do their part (DapdNcclWaitFor).
class CudaBursts {
 public:
  // `memory` must outlive it.
  CudaBursts(const CudaDecoderMemory& memory, const NcclRanks& ranks)
      : memory_(memory), ranks_(ranks) {}
  // All launched work must have ended.
  ~CudaBursts();
  CudaBursts(const CudaBursts&) = delete;
  CudaBursts& operator=(const CudaBursts&) = delete;

  // Takes the pinned memory. Must be called before all other functions.
  CudaOutcome Prepare();

  int64_t size() const { return size_; }
  bool is_full() const { return size_ == kMaxBursts; }
  // Returns the steps of all bursts together.
  int64_t steps() const;

  // Says that the last `steps` steps on the stream are a burst. Must not be
  // called if is_full().
  CudaOutcome Add(int64_t steps, cudaStream_t stream);
  // Waits for the oldest burst and removes it. The snapshot is valid until the
  // next call.
  CudaOutcome TakeOldest(CudaDecoderSnapshot* snapshot);
  // Waits for all work on the stream and reads the state then. There must be no
  // burst. `what` is for the message.
  CudaOutcome ReadNow(const char* what,
                      cudaStream_t stream,
                      CudaDecoderSnapshot* snapshot);
  // Waits without reading.
  CudaOutcome WaitForAll(const char* what, cudaStream_t stream);

 private:
  CudaOutcome Copy(cudaStream_t stream);
  CudaOutcome WaitFor(const char* what, int64_t buffer);

  const CudaDecoderMemory& memory_;
  const NcclRanks ranks_;
  char* snapshots_[kMaxBursts] = {};
  cudaEvent_t copied_[kMaxBursts] = {};
  int64_t steps_[kMaxBursts] = {};  // by buffer
  int64_t size_ = 0;
  int64_t next_ = 0;  // buffer of the next burst
};

}  // namespace dapd
