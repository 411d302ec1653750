// While they live, these objects refuse tensors as a full device does.
#pragma once

#include <functional>
#include <utility>

#include "c10/core/CPUAllocator.h"
#include "common/tensor/aten.h"

namespace dapd {

class RefusingMemory : public at::Allocator {
 public:
  // Several threads may call `refuses` at a time.
  explicit RefusingMemory(std::function<bool(size_t bytes)> refuses)
      : refuses_(std::move(refuses)), machine_(c10::GetCPUAllocator()) {
    c10::SetCPUAllocator(this, kPriority);
  }
  ~RefusingMemory() override { c10::SetCPUAllocator(machine_, kPriority); }

  at::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK_WITH(OutOfMemoryError, !refuses_(bytes), "no room for ", bytes);
    return machine_->allocate(bytes);
  }
  at::DeleterFnPtr raw_deleter() const override {
    return machine_->raw_deleter();
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    machine_->copy_data(to, from, bytes);
  }

 private:
  static constexpr uint8_t kPriority = 255;
  const std::function<bool(size_t bytes)> refuses_;
  at::Allocator* machine_;
};

// Refuses tensors above a size. One thread at a time.
class SmallMemory final : public RefusingMemory {
 public:
  explicit SmallMemory(size_t largest)
      : RefusingMemory([this, largest](size_t bytes) {
          if (bytes <= largest) return false;
          ++num_refused_;
          return true;
        }) {}
  int num_refused() const { return num_refused_; }

 private:
  int num_refused_ = 0;
};

}  // namespace dapd
