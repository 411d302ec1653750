#include "common/generation/cuda/cuda_step_graphs.h"

#include <algorithm>

#include "common/kernels/cuda/skinny_product.h"
#include "common/model/spec/decoding_shape.h"

namespace dapd {

DecodeBucket BucketFor(const CudaDecoderSpec& spec,
                       int64_t num_rows,
                       int64_t longest) {
  DecodeBucket bucket{
      spec.stable_bits ? LeastStableRows(spec.number, spec.max_rows) : 1,
      kGpuShortestContext};
  while (bucket.rows < num_rows) bucket.rows *= 2;
  while (bucket.max_tokens < longest) bucket.max_tokens *= 2;
  return {std::min(bucket.rows, spec.max_rows),
          std::min(bucket.max_tokens, spec.max_tokens)};
}

CudaStepGraphs::~CudaStepGraphs() { Clear(); }

void CudaStepGraphs::Clear() {
  for (const auto& [bucket, graph] : graphs_) cudaGraphExecDestroy(graph);
  graphs_.clear();
}

std::optional<DecodeBucket> CudaStepGraphs::Holding(
    const DecodeBucket& bucket) const {
  for (const auto& [captured, graph] : graphs_) {
    if (captured.rows >= bucket.rows &&
        captured.max_tokens >= bucket.max_tokens) {
      return captured;
    }
  }
  return std::nullopt;
}

CudaOutcome CudaStepGraphs::Capture(const DecodeBucket& bucket,
                                    cudaStream_t stream) {
  // The first run is without a graph, because libraries load their kernels
  // then, which a capture forbids.
  CudaOutcome outcome = step_.Run(bucket, stream);
  if (!outcome.ok()) return outcome;
  // The capture has its own stream: work on the default stream, which a
  // blocking stream waits for, would break the capture.
  cudaStream_t capturing = nullptr;
  outcome.Cuda("cudaStreamCreate",
               cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
  if (!outcome.ok()) return outcome;
  cudaGraph_t graph = nullptr;
  outcome.Cuda(
      "cudaStreamBeginCapture",
      cudaStreamBeginCapture(capturing, cudaStreamCaptureModeThreadLocal));
  if (outcome.ok()) {
    const CudaOutcome step = step_.Run(bucket, capturing);
    outcome.Cuda("cudaStreamEndCapture",
                 cudaStreamEndCapture(capturing, &graph));
    if (!step.ok()) outcome = step;
  }
  cudaStreamDestroy(capturing);
  cudaGraphExec_t executable = nullptr;
  if (outcome.ok()) {
    outcome.Cuda("cudaGraphInstantiate",
                 cudaGraphInstantiate(&executable, graph, 0));
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!outcome.ok()) return outcome;
  // A graph's device memory is allocated here or at its first launch. A failure
  // at the launch could not be undone.
  outcome.Cuda("cudaGraphUpload", cudaGraphUpload(executable, stream));
  if (outcome.ok()) {
    graphs_.emplace(bucket, executable);
  } else {
    cudaGraphExecDestroy(executable);
  }
  return outcome;
}

void CudaStepGraphs::Drop(const DecodeBucket& bucket) {
  cudaGraphExecDestroy(graphs_.at(bucket));
  graphs_.erase(bucket);
}

CudaOutcome CudaStepGraphs::Launch(const DecodeBucket& bucket,
                                   cudaStream_t stream) const {
  CudaOutcome outcome;
  outcome.Cuda("cudaGraphLaunch", cudaGraphLaunch(graphs_.at(bucket), stream));
  return outcome;
}

}  // namespace dapd
