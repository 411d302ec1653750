// The graphs of a decoder's steps, one for each number of rows and each length
// that was needed.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <optional>

#include "common/generation/cuda/cuda_decode_step.h"
#include "common/generation/cuda/cuda_outcome.h"

namespace dapd {

// Returns the smallest bucket for `num_rows` sequences, the longest of which
// has `longest` tokens.
DecodeBucket BucketFor(const CudaDecoderSpec& spec,
                       int64_t num_rows,
                       int64_t longest);

class CudaStepGraphs {
 public:
  // `step` must outlive it.
  explicit CudaStepGraphs(CudaDecodeStep& step) : step_(step) {}
  // All launched work must have ended.
  ~CudaStepGraphs();
  CudaStepGraphs(const CudaStepGraphs&) = delete;
  CudaStepGraphs& operator=(const CudaStepGraphs&) = delete;

  // Destroys all graphs; a running graph ends first.
  void Clear();
  // Returns the smallest captured bucket that has room for `bucket`.
  std::optional<DecodeBucket> Holding(const DecodeBucket& bucket) const;
  // Runs a step on the stream once, which must change no sequence, and captures
  // it. After an error there is no such graph, and it may be called again; all
  // gathers of the step have been launched even so, since other ranks wait for
  // them.
  CudaOutcome Capture(const DecodeBucket& bucket, cudaStream_t stream);
  // Destroys the graph of a captured bucket, which is not running.
  void Drop(const DecodeBucket& bucket);
  // Launches a step of a captured bucket.
  CudaOutcome Launch(const DecodeBucket& bucket, cudaStream_t stream) const;

 private:
  CudaDecodeStep& step_;
  std::map<DecodeBucket, cudaGraphExec_t> graphs_;
};

}  // namespace dapd
