// CudaOutcome keeps the first error of several CUDA calls.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <string>

#include "common/generation/cuda/cuda_decoder.h"

namespace dapd {

class CudaOutcome {
 public:
  // Records an error if there was none before. `code` is a cudaError_t.
  void Cuda(const char* what, int code) {
    if (code == 0) return;
    cudaGetLastError();  // otherwise LibTorch takes it for its next launch's
    if (!ok()) return;
    message_ = std::string("[cuda_decoder] ") + what + ": " +
               cudaGetErrorString(static_cast<cudaError_t>(code));
  }
  // Records a problem; an empty text is none.
  void Text(const std::string& problem) {
    if (ok()) message_ = problem;
  }
  // Records the result of an operation between the ranks (nccl_api.h).
  void Nccl(int code, const char* error) {
    if (code == 0 || !ok()) return;
    message_ = std::string("[cuda_decoder] ") + error;
    ranks_are_lost_ = true;
  }
  // Asks all ranks whether they have come here without an error, and records an
  // error if one has not. A rank that knows that ranks are lost asks nobody.
  void Agree(const RanksAgree& ranks) {
    if (ranks.ask == nullptr || ranks_are_lost_) return;
    const RanksAgree::Answer answer = ranks.ask(ranks.asked, ok());
    if (answer == RanksAgree::kLost) {
      Text("[cuda_decoder] the ranks of this worker have lost each other");
      ranks_are_lost_ = true;
    } else if (answer == RanksAgree::kNo) {
      Text("[cuda_decoder] another rank of this worker is out of memory");
      ranks_refuse_ = true;
    }
  }
  bool ok() const { return message_.empty(); }
  bool ranks_are_lost() const { return ranks_are_lost_; }
  // Returns the result of a C function: 0, or another number with the message
  // in `error`.
  int Give(char* error) const {
    if (ok()) return 0;
    std::snprintf(error, kCudaErrorBytes, "%s", message_.c_str());
    if (ranks_are_lost_) return kCudaRanksLost;
    return ranks_refuse_ ? kCudaRanksRefuse : 1;
  }

 private:
  bool ranks_are_lost_ = false;
  bool ranks_refuse_ = false;
  std::string message_;
};

}  // namespace dapd
