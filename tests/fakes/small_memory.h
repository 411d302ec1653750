// While it lives, refuses tensors above a size, as a full device does.
#pragma once

#include "c10/core/CPUAllocator.h"
#include "common/tensor/aten.h"

namespace dapd {

class SmallMemory : public at::Allocator {
 public:
  explicit SmallMemory(size_t largest)
      : largest_(largest), machine_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(this, kPriority);
  }
  ~SmallMemory() override { c10::SetCPUAllocator(machine_, kPriority); }

  at::DataPtr allocate(size_t bytes) override {
    if (bytes > largest_) {
      ++num_refused_;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "no room for ", bytes);
    }
    return machine_->allocate(bytes);
  }
  at::DeleterFnPtr raw_deleter() const override {
    return machine_->raw_deleter();
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    machine_->copy_data(to, from, bytes);
  }
  int num_refused() const { return num_refused_; }

 private:
  static constexpr uint8_t kPriority = 255;
  size_t largest_;
  at::Allocator* machine_;
  int num_refused_ = 0;
};

}  // namespace dapd
