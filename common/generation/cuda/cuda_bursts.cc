#include "common/generation/cuda/cuda_bursts.h"

namespace dapd {

CudaBursts::~CudaBursts() {
  for (int64_t i = 0; i < kMaxBursts; ++i) {
    if (copied_[i] != nullptr) cudaEventDestroy(copied_[i]);
    if (snapshots_[i] != nullptr) cudaFreeHost(snapshots_[i]);
  }
}

CudaOutcome CudaBursts::Prepare() {
  CudaOutcome outcome;
  for (int64_t i = 0; i < kMaxBursts; ++i) {
    void* pinned = nullptr;
    outcome.Cuda("cudaMallocHost",
                 cudaMallocHost(&pinned, memory_.snapshot_bytes));
    snapshots_[i] = static_cast<char*>(pinned);
    outcome.Cuda("cudaEventCreate",
                 cudaEventCreateWithFlags(&copied_[i], cudaEventDisableTiming));
  }
  return outcome;
}

int64_t CudaBursts::steps() const {
  int64_t steps = 0;
  for (int64_t i = 1; i <= size_; ++i) {
    steps += steps_[(next_ + kMaxBursts - i) % kMaxBursts];
  }
  return steps;
}

CudaOutcome CudaBursts::Add(int64_t steps, cudaStream_t stream) {
  CudaOutcome outcome = Copy(stream);
  if (!outcome.ok()) return outcome;
  steps_[next_] = steps;
  next_ = (next_ + 1) % kMaxBursts;
  ++size_;
  return outcome;
}

CudaOutcome CudaBursts::TakeOldest(CudaDecoderSnapshot* snapshot) {
  const int64_t oldest = (next_ + kMaxBursts - size_) % kMaxBursts;
  CudaOutcome outcome = WaitFor("step", oldest);
  if (!outcome.ok()) return outcome;
  *snapshot = memory_.SnapshotAt(snapshots_[oldest]);
  --size_;
  return outcome;
}

CudaOutcome CudaBursts::ReadNow(const char* what,
                                cudaStream_t stream,
                                CudaDecoderSnapshot* snapshot) {
  CudaOutcome outcome = Copy(stream);
  if (outcome.ok()) outcome = WaitFor(what, next_);
  if (outcome.ok()) *snapshot = memory_.SnapshotAt(snapshots_[next_]);
  return outcome;
}

CudaOutcome CudaBursts::WaitForAll(const char* what, cudaStream_t stream) {
  CudaOutcome outcome;
  outcome.Cuda("cudaEventRecord", cudaEventRecord(copied_[next_], stream));
  return outcome.ok() ? WaitFor(what, next_) : outcome;
}

CudaOutcome CudaBursts::Copy(cudaStream_t stream) {
  CudaOutcome outcome;
  outcome.Cuda("copy",
               cudaMemcpyAsync(snapshots_[next_],
                               memory_.snapshot,
                               memory_.snapshot_bytes,
                               cudaMemcpyDeviceToHost,
                               stream));
  outcome.Cuda("cudaEventRecord", cudaEventRecord(copied_[next_], stream));
  return outcome;
}

CudaOutcome CudaBursts::WaitFor(const char* what, int64_t buffer) {
  CudaOutcome outcome;
  if (ranks_.size == 1) {
    outcome.Cuda(what, cudaEventSynchronize(copied_[buffer]));
  } else {
    char error[kNcclErrorBytes] = "";
    const int code = DapdNcclWaitFor(&ranks_, copied_[buffer], error);
    outcome.Nccl(code, error);
  }
  return outcome;
}

}  // namespace dapd
