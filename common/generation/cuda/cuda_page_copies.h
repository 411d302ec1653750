// Copies a decoder's pages of keys and values between the device and
// page-locked memory of the host. A page is so many bytes; what is in it does
// not matter.
//
// The copies have a stream of their own. The decoder's stream waits for them,
// and so does LibTorch's default stream, because both streams are blocking: the
// memory of a page that was copied to the host can be reused at once, by
// either. The host waits for nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include "common/generation/cuda/cuda_outcome.h"

namespace dapd {

class CudaPageCopies {
 public:
  CudaPageCopies() = default;
  // Waits for all copies.
  ~CudaPageCopies();
  CudaPageCopies(const CudaPageCopies&) = delete;
  CudaPageCopies& operator=(const CudaPageCopies&) = delete;

  // Makes the stream. Must be called before Copy.
  CudaOutcome Prepare();

  // Copies from[i] to to[i], `page_bytes` each: after all work that is on
  // `decoder` now, and before all work that comes to it later.
  CudaOutcome Copy(std::span<void* const> to,
                   std::span<void* const> from,
                   size_t page_bytes,
                   cudaStream_t decoder);

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t before_ = nullptr;  // on the decoder's stream
  cudaEvent_t copied_ = nullptr;
};

}  // namespace dapd
