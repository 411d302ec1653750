// The KV cache of a model with two layers on the simulated device. Pages lie
// anywhere; where a slot has no page yet, its address is null.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "common/kernels/cuda/launch.h"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/float8.h"
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
        if (page <= position / kPageTokens) {
          pages_.push_back(std::make_unique<DeviceBuffer<T>>(
              "page", Elements(2 * 2 * kv_heads * PartSize())));
          address = pages_.back()->data();
        }
        addresses.push_back(address);
      }
    }
    table_ = std::make_unique<DeviceBuffer<void*>>("pages", addresses);
    table_->MarkConstant();
  }

  // Returns the second layer.
  CudaKvPages View() const {
    return {table_->data(), pages_per_slot_, 1, kIsFloat8};
  }

  // Returns [head_dim] of a token in the second layer: part h has KV head h's
  // keys, part kv_heads + h its values.
  T* At(int64_t slot, int64_t token, int64_t part) const {
    return Part(slot, token, part) + token % kPageTokens * head_dim_;
  }
  // Returns a token's scale, if the cache is Float8.
  BFloat16* ScaleAt(int64_t slot, int64_t token, int64_t part) const {
    return reinterpret_cast<BFloat16*>(Part(slot, token, part) +
                                       kPageTokens * head_dim_) +
           token % kPageTokens;
  }

  void WriteScale(int64_t slot, int64_t token, int64_t part, double scale) {
    BFloat16* const to = ScaleAt(slot, token, part);
    *to = FromFloat<BFloat16>(static_cast<float>(scale));
    GlobalMemory().MarkWritten(to, sizeof(BFloat16));
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
    if (!kIsFloat8) return;
    GlobalMemory().MarkConstant(ScaleAt(slot, token, part), sizeof(BFloat16));
  }

  // Returns how many T of all pages have been written.
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
  static constexpr bool kIsFloat8 = std::is_same_v<T, Float8>;

  // Returns how many T the keys, or values, of a KV head take in a page.
  int64_t PartSize() const {
    return kIsFloat8 ? Float8PartBytes(head_dim_) : kPageTokens * head_dim_;
  }
  T* Part(int64_t slot, int64_t token, int64_t part) const {
    void* page = table_->data()[slot * pages_per_slot_ + token / kPageTokens];
    return static_cast<T*>(page) + (2 * kv_heads_ + part) * PartSize();
  }

  int64_t pages_per_slot_;
  int64_t kv_heads_;
  int64_t head_dim_;
  std::vector<std::unique_ptr<DeviceBuffer<T>>> pages_;
  std::unique_ptr<DeviceBuffer<void*>> table_;
};

}  // namespace dapd::fake
