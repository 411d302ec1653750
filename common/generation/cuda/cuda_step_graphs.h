// The graphs of a decoder's steps, one for each number of rows and each length
// that was asked for.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <optional>

#include "common/generation/cuda/cuda_decode_step.h"
#include "common/generation/cuda/cuda_outcome.h"

namespace dapd {

// The smallest bucket for so many sequences, of which the longest has so many
// tokens.
DecodeBucket BucketFor(const CudaDecoderSpec& spec,
                       int64_t num_rows,
                       int64_t longest);

class CudaStepGraphs {
 public:
  // `step` must outlive it.
  explicit CudaStepGraphs(CudaDecodeStep& step) : step_(step) {}
  // What was launched must have ended.
  ~CudaStepGraphs();
  CudaStepGraphs(const CudaStepGraphs&) = delete;
  CudaStepGraphs& operator=(const CudaStepGraphs&) = delete;

  // Destroys all of them, each behind what is under way of it.
  void Clear();
  // The smallest of them that has room for it.
  std::optional<DecodeBucket> Holding(const DecodeBucket& bucket) const;
  // Runs a step on the stream once, which must touch no sequence, and captures
  // it. After an error there is no such graph, and it may be called again.
  CudaOutcome Capture(const DecodeBucket& bucket, cudaStream_t stream);
  // A step of a bucket that was captured.
  CudaOutcome Launch(const DecodeBucket& bucket, cudaStream_t stream) const;

 private:
  CudaDecodeStep& step_;
  std::map<DecodeBucket, cudaGraphExec_t> graphs_;
};

}  // namespace dapd
