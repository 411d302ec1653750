// Holds a block's part of a token's rows in shared memory, loads it and writes
// gradients back (divergence_cluster.h).
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/divergence_plan.h"

namespace dapd {

// Fills a row's last group: such an entry has no probability and differs from
// no other row's entry.
inline constexpr float kPad = -1e30F;

struct alignas(16) Group {
  float value[kClusterGroup];
};

// kThreads is the size of the block; kNarrow: some sources give bfloat16
// logits, which become float32 in shared memory. The rows of one token at a
// time; the next token's rows are loaded into the places that become free.
template <int kThreads, bool kNarrow>
class RowSlice {
 public:
  // Makes the part of the cluster's block `rank`. `rows` [slots, slice] is
  // shared memory.
  __device__ RowSlice(const CudaDivergenceArgs& args,
                      const ClusterPlan& plan,
                      int rank,
                      float* rows)
      : args_(args), plan_(plan), rows_(rows), begin_(rank * plan.slice) {
    const int64_t left = args.vocabulary - begin_;
    size_ = static_cast<int>(left < 0            ? 0
                             : left < plan.slice ? left
                                                 : plan.slice);
    groups_ = (size_ + kClusterGroup - 1) / kClusterGroup;
  }

  // Return the first vocabulary entry of the part, and the number of entries.
  __device__ int64_t begin() const { return begin_; }
  __device__ int size() const { return size_; }
  // The last group may reach past the end; its entries there are kPad.
  __device__ int num_groups() const { return groups_; }

  __device__ float* Row(int slot) const { return rows_ + slot * plan_.slice; }
  __device__ Group& At(int slot, int g) const {
    return *reinterpret_cast<Group*>(Row(slot) + g * kClusterGroup);
  }

  // Begins to load a token's rows, the same group of all rows at a time.
  __device__ void Load(int64_t token) const {
    for (int g = static_cast<int>(threadIdx.x); g < groups_; g += kThreads) {
      for (int s = 0; s < plan_.num_given; ++s) {
        LoadGroup(RowFrom(s, token), s, g);
      }
      __pipeline_commit();
    }
  }

  // Returns where this block's part of the row for a given slot lies in global
  // memory.
  __device__ const void* RowFrom(int slot, int64_t token) const {
    const DivergenceSource& source = args_.sources[plan_.given[slot]];
    const int64_t at = token * source.stride + begin_;
    if (IsNarrow(slot)) {
      return reinterpret_cast<const BFloat16*>(source.logits) + at;
    }
    return source.logits + at;
  }

  // Begins to load group `g` of `row`, a result of RowFrom.
  __device__ void LoadGroup(const void* row, int slot, int g) const {
    float* const to = At(slot, g).value;
    if (IsNarrow(slot)) {
      LoadGroupOf(static_cast<const BFloat16*>(row), g, to);
    } else {
      LoadGroupOf(static_cast<const float*>(row), g, to);
    }
  }

  // Returns a group that has arrived; one thread calls this once for each. From
  // then on its numbers are float32.
  __device__ Group Arrived(int slot, int g) const {
    Group& group = At(slot, g);
    if (plan_.wide && IsNarrow(slot)) {
      const auto narrow = *reinterpret_cast<const NarrowGroup*>(&group);
#pragma unroll
      for (int i = 0; i < kClusterGroup; ++i) {
        group.value[i] = ToFloat(narrow.value[i]);
      }
    }
    return group;
  }

  // Returns where this block's part of a row's gradient goes: it replaces the
  // logits.
  template <typename T>
  __device__ T* GradientRow(int slot, int64_t token) const {
    const DivergenceSource& source = args_.sources[plan_.given[slot]];
    const int64_t at = token * source.stride;
    if (IsNarrow(slot)) {
      return reinterpret_cast<T*>(source.logits) + at + begin_;
    }
    return reinterpret_cast<T*>(source.logits + at) + begin_;
  }

  template <typename T>
  __device__ void Store(T* row, int g, const Group& gradient) const {
    T* const to = row + g * kClusterGroup;
    if (plan_.wide) {
      struct alignas(kClusterGroup * sizeof(T)) Rounded {
        T value[kClusterGroup];
      } rounded;
#pragma unroll
      for (int i = 0; i < kClusterGroup; ++i) {
        rounded.value[i] = FromFloat<T>(gradient.value[i]);
      }
      *reinterpret_cast<Rounded*>(to) = rounded;
      return;
    }
    for (int i = 0; i < kClusterGroup && g * kClusterGroup + i < size_; ++i) {
      to[i] = FromFloat<T>(gradient.value[i]);
    }
  }

 private:
  // Four bfloat16 logits, as they arrive at the place of a group.
  struct alignas(kClusterGroup * sizeof(BFloat16)) NarrowGroup {
    BFloat16 value[kClusterGroup];
  };

  __device__ bool IsNarrow(int slot) const {
    return kNarrow && args_.sources[plan_.given[slot]].is_narrow;
  }

  template <typename Number>
  __device__ void LoadGroupOf(const Number* row, int g, float* to) const {
    const Number* const from = row + g * kClusterGroup;
    if (plan_.wide) {
      __pipeline_memcpy_async(to, from, kClusterGroup * sizeof(Number));
    } else {
      LoadEntries(from, g, to);
    }
  }

  template <typename Number>
  __device__ void LoadEntries(const Number* group, int g, float* to) const {
    for (int i = 0; i < kClusterGroup; ++i) {
      if (g * kClusterGroup + i >= size_) {
        to[i] = kPad;
      } else if constexpr (sizeof(Number) == sizeof(float)) {
        __pipeline_memcpy_async(to + i, group + i, sizeof(float));
      } else {
        to[i] = ToFloat(group[i]);
      }
    }
  }

  const CudaDivergenceArgs& args_;
  const ClusterPlan& plan_;
  float* rows_;
  int64_t begin_;
  int size_;
  int groups_;
};

}  // namespace dapd
