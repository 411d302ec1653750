// Page-locked memory of the host, in pages of one size, for the keys and values
// of sequences that left the device. A page that is given back is used again:
// locking memory takes some milliseconds. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "common/generation/cuda/cuda_decode_api.h"

namespace dapd {

class CudaHostPages {
 public:
  CudaHostPages(const CudaDecodeApi& api, int64_t page_bytes);
  // All copies of the pages must have ended.
  ~CudaHostPages();
  CudaHostPages(const CudaHostPages&) = delete;
  CudaHostPages& operator=(const CudaHostPages&) = delete;

  // Returns the bytes that one process may take: half of the host's memory that
  // was available when this object was made.
  int64_t limit_bytes() const { return limit_bytes_; }

  // Takes `count` pages. Returns none if the host has no memory for them, or if
  // less than limit_bytes() would remain available, so that all processes of a
  // machine that lock memory take half of it together.
  std::vector<void*> Take(int64_t count);
  void Give(const std::vector<void*>& pages);

 private:
  const CudaDecodeApi api_;
  const int64_t page_bytes_;
  const int64_t limit_bytes_;
  std::vector<void*> all_;
  std::vector<void*> unused_;
};

}  // namespace dapd
