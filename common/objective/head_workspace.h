// Memory for the logits of one chunk of tokens. Kept from call to call, since a
// fresh allocation of this size costs as much time as a pass over it.
#pragma once

#include <cstdint>

#include "common/tensor/aten.h"

namespace dapd {

// Not thread-safe: owned by the compute thread.
class HeadWorkspace {
 public:
  // [rows, columns] float32 on `device`, uninitialised; the memory of the call
  // before. Grows as needed and never shrinks.
  at::Tensor Take(int64_t rows, int64_t columns, at::Device device);

 private:
  at::Tensor memory_;
};

}  // namespace dapd
