// What a decoder has launched and the host has not read yet: bursts of steps,
// at most kMaxBursts. Each ends with a copy of the decoder's state in pinned
// memory, so that the host reads of one burst while the next one runs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/collective/nccl_api.h"
#include "common/generation/cuda/cuda_decoder.h"
#include "common/generation/cuda/cuda_decoder_memory.h"
#include "common/generation/cuda/cuda_outcome.h"

namespace dapd {

// All calls are about one stream. Where `ranks` are several, a wait also ends,
// with an error, when the others do not do their part (DapdNcclWaitFor).
class CudaBursts {
 public:
  // `memory` must outlive it.
  CudaBursts(const CudaDecoderMemory& memory, const NcclRanks& ranks)
      : memory_(memory), ranks_(ranks) {}
  // What was launched must have ended.
  ~CudaBursts();
  CudaBursts(const CudaBursts&) = delete;
  CudaBursts& operator=(const CudaBursts&) = delete;

  // Takes the pinned memory; before all else.
  CudaOutcome Prepare();

  int64_t size() const { return size_; }
  bool is_full() const { return size_ == kMaxBursts; }
  // Of all bursts together.
  int64_t steps() const;

  // What the stream was given last is a burst of `steps` steps. Not if it is
  // full.
  CudaOutcome Add(int64_t steps, cudaStream_t stream);
  // Waits for the oldest burst and takes it out. The snapshot is valid until
  // the next call.
  CudaOutcome TakeOldest(CudaDecoderSnapshot* snapshot);
  // Where there is no burst: waits for what the stream was given, and reads
  // the state then. `what`: for the message.
  CudaOutcome ReadNow(const char* what,
                      cudaStream_t stream,
                      CudaDecoderSnapshot* snapshot);
  // Only waits.
  CudaOutcome WaitForAll(const char* what, cudaStream_t stream);

 private:
  CudaOutcome Copy(cudaStream_t stream);
  CudaOutcome WaitFor(const char* what, int64_t buffer);

  const CudaDecoderMemory& memory_;
  const NcclRanks ranks_;
  char* snapshots_[kMaxBursts] = {};
  cudaEvent_t copied_[kMaxBursts] = {};
  int64_t steps_[kMaxBursts] = {};  // of the burst in a buffer
  int64_t size_ = 0;
  int64_t next_ = 0;  // the buffer of the next burst
};

}  // namespace dapd
