// A block's part of a token's rows in its shared memory, and the way there and
// back (divergence_cluster.h).
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/divergence_plan.h"

namespace dapd {

// What fills a row's last group: it has no probability and differs from no
// other row's.
inline constexpr float kPad = -1e30F;

struct alignas(16) Group {
  float value[kClusterGroup];
};

// The rows of one token at a time, behind which the next one's are loaded.
class RowSlice {
 public:
  // The part of the cluster's block `rank`. `rows` [slots, slice] is shared.
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

  // The first entry of the vocabulary, and how many.
  __device__ int64_t begin() const { return begin_; }
  __device__ int size() const { return size_; }
  // The last group may reach past the end: what is there is kPad.
  __device__ int num_groups() const { return groups_; }

  __device__ float* Row(int slot) const { return rows_ + slot * plan_.slice; }
  __device__ Group& At(int slot, int g) const {
    return *reinterpret_cast<Group*>(Row(slot) + g * kClusterGroup);
  }

  // Begins to load a token's rows, a group of all of them at a time.
  __device__ void Load(int64_t token) const {
    for (int g = static_cast<int>(threadIdx.x); g < groups_;
         g += kClusterThreads) {
      for (int s = 0; s < plan_.num_given; ++s) {
        LoadGroup(RowFrom(s, token), s, g);
      }
      __pipeline_commit();
    }
  }

  // Where this block's part of the row for a given slot comes from.
  __device__ const float* RowFrom(int slot, int64_t token) const {
    const DivergenceSource& source = args_.sources[plan_.given[slot]];
    return source.logits + token * source.stride + begin_;
  }

  // Begins to load a group of a row that comes from there.
  __device__ void LoadGroup(const float* row, int slot, int g) const {
    const float* const from = row + g * kClusterGroup;
    float* const to = At(slot, g).value;
    if (plan_.wide) {
      __pipeline_memcpy_async(to, from, sizeof(Group));
    } else {
      LoadEntries(from, g, to);
    }
  }

  // Where this block's part of a row's gradient goes: where its logits came
  // from.
  template <typename T>
  __device__ T* GradientRow(const DivergenceSource& source,
                            int64_t token) const {
    return reinterpret_cast<T*>(source.logits + token * source.stride) + begin_;
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
  __device__ void LoadEntries(const float* group, int g, float* to) const {
    for (int i = 0; i < kClusterGroup; ++i) {
      if (g * kClusterGroup + i < size_) {
        __pipeline_memcpy_async(to + i, group + i, sizeof(float));
      } else {
        to[i] = kPad;
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
