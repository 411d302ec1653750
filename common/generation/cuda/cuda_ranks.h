// The common operations of ranks that share a model and decode on GPUs
// (rollout.tensor_parallel), except the operations in the decoder's graphs
// (cuda_decoder.h). All ranks make these calls in one order.
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

// A rank's place among the ranks that share a model.
struct CudaDecodeRanks {
  ModelConfig model;  // the whole model
  ShardLayout layout;
  std::shared_ptr<DeviceGroup> devices;  // null: the model is not shared
};

// Returns a rank's share as the weights of a smaller model. Unlike in
// WeightsOfRank, the biases of O and down are whole on every rank: the kernels
// add them after the sum.
ModelWeights CudaWeightsOfRank(const ShardedWeights& share);

class CudaRanks {
 public:
  // `decoder` is the decoder whose graphs contain operations of the ranks, null
  // while there is none. It must outlive this object.
  CudaRanks(CudaDecodeRanks place,
            const CudaDecodeApi& api,
            void* const& decoder)
      : place_(std::move(place)), api_(api), decoder_(decoder) {}

  const CudaDecodeRanks& place() const { return place_; }
  bool share_a_model() const { return place_.devices != nullptr; }
  NcclRanks nccl() const {
    return share_a_model() ? place_.devices->nccl() : NcclRanks{};
  }

  // Returns whether the common operations have ended for good. Then a decoder
  // can only be destroyed (kCudaRanksLost).
  bool are_lost() const { return are_lost_; }

  // Waits until the decoder's launched work has ended: because the other ranks
  // do their part or, if they do not come, because the common operations are
  // aborted. Must be called before the decoder is destroyed or anything else
  // waits for the device without a time limit. Stops the sequence in slot 0.
  // Without other ranks it does nothing.
  void Settle() const;

  // Throws if a function of the library has failed: the errors of CheckCuda,
  // or, with several ranks, ABORTED as StatusError, which ends all ranks.
  void Check(int code, const char* error) const;

  // Calls `call`, which every rank calls at this place. It must not fail on one
  // rank alone, so a c10::Error ends all ranks.
  template <typename Call>
  auto OnEveryRank(const Call& call) const {
    if (!share_a_model()) return call();
    try {
      return call();
    } catch (const c10::Error& error) {
      Lose(error.what_without_backtrace());
    }
  }

  // Implements SumOfParts (packed_projections.h) in `dtype`: each rank adds up
  // a piece of the parts, in the order of the ranks, and gives it to the other
  // ranks.
  at::Tensor AddUp(const at::Tensor& part, at::ScalarType dtype) const;

 private:
  // Ends the common operations of the ranks.
  void End() const;
  [[noreturn]] void Lose(const std::string& why) const;

  const CudaDecodeRanks place_;
  const CudaDecodeApi api_;
  void* const& decoder_;
  mutable bool are_lost_ = false;
};

}  // namespace dapd
