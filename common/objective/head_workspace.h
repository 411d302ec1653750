// Holds the memory for the logits of one chunk of tokens from call to call,
// since a fresh allocation of this size costs as much time as a pass over it.
#pragma once

#include <cstdint>

#include "common/tensor/aten.h"

namespace dapd {

// Not thread-safe; the compute thread owns it.
class HeadWorkspace {
 public:
  // Returns [rows, columns] float32 on `device`, uninitialised. The memory is
  // the same as in the call before; it grows as needed and never shrinks.
  at::Tensor Take(int64_t rows, int64_t columns, at::Device device);

 private:
  at::Tensor memory_;
};

}  // namespace dapd
