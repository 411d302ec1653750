// What ranks that share a model do together while they decode on GPUs
// (rollout.tensor_parallel), beside what is in the decoder's graphs
// (cuda_decoder.h). All of them call the same in the same order.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/collective/device_group.h"
#include "common/generation/cuda/cuda_decode_api.h"
#include "common/model/weights/weights.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/aten.h"

namespace dapd {

// A rank's place among those that share a model.
struct CudaDecodeRanks {
  ModelConfig model;  // the whole one
  ShardLayout layout;
  std::shared_ptr<DeviceGroup> devices;  // null: the model is not shared
};

// A rank's share as the weights of a model of its own. Unlike WeightsOfRank's,
// its biases of O and down are whole on every rank: the kernels add them behind
// the sum.
ModelWeights CudaWeightsOfRank(const ShardedWeights& share);

class CudaRanks {
 public:
  // `decoder`: whose graphs have operations of the ranks in them; null while
  // there is none. To outlive this.
  CudaRanks(CudaDecodeRanks place,
            const CudaDecodeApi& api,
            void* const& decoder)
      : place_(std::move(place)), api_(api), decoder_(decoder) {}

  const CudaDecodeRanks& place() const { return place_; }
  bool share_a_model() const { return place_.devices != nullptr; }
  NcclRanks nccl() const {
    return share_a_model() ? place_.devices->nccl() : NcclRanks{};
  }

  // Whether what the ranks do together has ended for good. Of a decoder nothing
  // but its end is then left to call (kCudaRanksLost).
  bool are_lost() const { return are_lost_; }

  // Before the decoder is destroyed, or anything else waits for the device
  // without an end: what it has launched ends, by the other ranks' doing or, if
  // they do not come, by the end of what the ranks do together. Takes slot 0
  // out. One process alone does not need it.
  void Settle() const;

  // Throws for what a function of the library has answered: CheckCuda's errors,
  // or what ends all ranks, ABORTED as StatusError.
  void Check(int code, const char* error) const;

  // Calls what every rank calls now: it must not fail on one of them alone, so
  // that a c10::Error ends all.
  template <typename Call>
  auto OnEveryRank(const Call& call) const {
    if (!share_a_model()) return call();
    try {
      return call();
    } catch (const c10::Error& error) {
      Lose(error.what_without_backtrace());
    }
  }

  // A SumOfParts (packed_projections.h) in `dtype`: each rank adds up a piece
  // of the parts, in the order of the ranks, and gives it to the other ranks.
  at::Tensor AddUp(const at::Tensor& part, at::ScalarType dtype) const;

 private:
  // Ends what the ranks do together.
  void End() const;
  [[noreturn]] void Lose(const std::string& why) const;

  const CudaDecodeRanks place_;
  const CudaDecodeApi api_;
  void* const& decoder_;
  mutable bool are_lost_ = false;
};

}  // namespace dapd
