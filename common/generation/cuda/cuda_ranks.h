// The common operations of ranks that share a model and decode on GPUs
// (rollout.tensor_parallel), except the operations in the decoder's graphs
// (cuda_decoder.h). All ranks make these calls in one order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/collective/collective.h"
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
  Collective* collective = nullptr;      // of the same ranks; outlives them
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

  // Returns what a decoder needs to ask the other ranks.
  RanksAgree agree() const;

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
  // or, with several ranks, ABORTED as StatusError, which ends all ranks, and
  // WantOnARank for kCudaRanksRefuse if a rank has found no memory.
  void Check(int code, const char* error) const;
  // The same in a call of OnEveryRank, which may find no memory.
  void CheckMemory(int code, const char* error) const;

  // Calls `call`, which every rank calls at this place and which leaves nothing
  // undone that the other ranks wait for. If it finds no memory on a rank,
  // calls `undo` on all ranks, which then are as before, and throws WantOnARank
  // on all; without other ranks it throws c10::OutOfMemoryError and calls
  // nothing. Any other c10::Error ends all ranks.
  void OnEveryRank(const std::function<void()>& call,
                   const std::function<void()>& undo = {}) const;

 private:
  friend class CudaRankSums;

  // Ends the common operations of the ranks.
  void End() const;
  [[noreturn]] void Lose(const std::string& why) const;

  const CudaDecodeRanks place_;
  const CudaDecodeApi api_;
  void* const& decoder_;
  mutable bool are_lost_ = false;
};

// The sums of a pass over prompts: `count` of them, each of [rows, hidden]
// float32. Takes the memory for their results at once, so that a rank that
// finds no memory in the middle of its pass can still do its part in the sums
// that the other ranks wait for.
class CudaRankSums {
 public:
  // `result` has the dtype and the device of the sums. Throws
  // c10::OutOfMemoryError before anything is launched.
  CudaRankSums(const CudaRanks& ranks,
               int64_t rows,
               int64_t hidden,
               int64_t count,
               const at::TensorOptions& result);

  // Implements SumOfParts (packed_projections.h): each rank adds up a piece of
  // the parts, in the order of the ranks, and gives it to the other ranks. The
  // result's memory is used again by the sum after the next one. Nothing is
  // launched if it throws c10::OutOfMemoryError.
  at::Tensor AddUp(const at::Tensor& part);

  // Launches the sums that this rank has not launched, with values that nobody
  // uses.
  void LaunchRest();

 private:
  // Launches the sum of the ranks' `parts`, [ranks, piece] float32 each, and
  // returns it, [ranks, piece].
  at::Tensor Launch(const void* parts);

  const CudaRanks& ranks_;
  const int64_t numel_;
  const int64_t piece_;  // numbers of a rank's piece
  int64_t left_;         // sums that are not launched yet
  at::Tensor received_;  // [ranks, piece] float32
  // [2, ranks, piece]: results in turn, because a residual stream lives in the
  // memory of the sum that it was made from until it has read the next sum.
  at::Tensor sums_;
};

}  // namespace dapd
