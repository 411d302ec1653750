// The KV cache of a model with two layers on the simulated device. Pages lie
// anywhere; where a slot has no page yet, its address is null.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/kernels/cuda/launch.h"
#include "common/kernels/decode_attention_math.h"
#include "tests/fakes/cuda/device.h"

namespace dapd::fake {

template <typename T>
class DevicePages {
 public:
  // Makes pages for slot s up to the page of token positions[s]. They are
  // unwritten.
  DevicePages(const std::vector<int32_t>& positions,
              int64_t pages_per_slot,
              int64_t kv_heads,
              int64_t head_dim)
      : pages_per_slot_(pages_per_slot),
        kv_heads_(kv_heads),
        head_dim_(head_dim) {
    std::vector<void*> addresses;
    for (const int32_t position : positions) {
      for (int64_t page = 0; page < pages_per_slot; ++page) {
        void* address = nullptr;
        if (page <= position / kSplitTokens) {
          pages_.push_back(std::make_unique<DeviceBuffer<T>>(
              "page", Elements(2 * 2 * kv_heads * kSplitTokens * head_dim)));
          address = pages_.back()->data();
        }
        addresses.push_back(address);
      }
    }
    table_ = std::make_unique<DeviceBuffer<void*>>("pages", addresses);
    table_->MarkConstant();
  }

  // Returns the second layer.
  CudaKvPages View() const { return {table_->data(), pages_per_slot_, 1}; }

  // Returns [head_dim] of a token in the second layer: part h has KV head h's
  // keys, part kv_heads + h its values.
  T* At(int64_t slot, int64_t token, int64_t part) const {
    void* page = table_->data()[slot * pages_per_slot_ + token / kSplitTokens];
    return static_cast<T*>(page) +
           ((2 * kv_heads_ + part) * kSplitTokens + token % kSplitTokens) *
               head_dim_;
  }

  void Write(int64_t slot,
             int64_t token,
             int64_t part,
             const std::vector<T>& values) {
    T* to = At(slot, token, part);
    std::copy(values.begin(), values.end(), to);
    GlobalMemory().MarkWritten(to, values.size() * sizeof(T));
  }

  // Forbids launches to write them.
  void MarkConstant(int64_t slot, int64_t token, int64_t part) {
    GlobalMemory().MarkConstant(At(slot, token, part),
                                static_cast<size_t>(head_dim_) * sizeof(T));
  }

  // Returns how many numbers of all pages have been written.
  int64_t NumWritten() const {
    int64_t count = 0;
    for (const auto& page : pages_) {
      for (size_t i = 0; i < page->size(); ++i) {
        count += page->IsWritten(static_cast<int64_t>(i)) ? 1 : 0;
      }
    }
    return count;
  }

 private:
  int64_t pages_per_slot_;
  int64_t kv_heads_;
  int64_t head_dim_;
  std::vector<std::unique_ptr<DeviceBuffer<T>>> pages_;
  std::unique_ptr<DeviceBuffer<void*>> table_;
};

}  // namespace dapd::fake
