#include "common/generation/cuda/cuda_ranks.h"

#include "common/base/status_error.h"
#include "common/sharding/tensor_parallel.h"

namespace dapd {

ModelWeights CudaWeightsOfRank(const ShardedWeights& share) {
  ModelWeights own = WeightsOfRank(share);
  for (size_t layer = 0; layer < own.layers.size(); ++layer) {
    const LayerRecipe recipe =
        LayerRecipeOf(own.config, static_cast<int64_t>(layer));
    for (const Projection projection : recipe.All()) {
      if (SplitDimension(recipe[projection]) == 0) continue;
      const size_t index = IndexOf(projection);
      own.layers[layer].bias[index] = share.shard.layers[layer].bias[index];
    }
  }
  return own;
}

void CudaRanks::End() const {
  if (decoder_ != nullptr) api_.drop_graphs(decoder_);
  place_.devices->Abort();
  are_lost_ = true;
}

void CudaRanks::Settle() const {
  if (!share_a_model() || are_lost_ || decoder_ == nullptr) return;
  char error[kCudaErrorBytes] = "";
  // Any slot will do, since the call waits for all launched work.
  if (api_.stop(decoder_, 0, error) != 0) End();
}

void CudaRanks::Lose(const std::string& why) const {
  End();
  throw StatusError(absl::AbortedError(why));
}

void CudaRanks::Check(int code, const char* error) const {
  if (code != 0 && share_a_model()) Lose(error);
  CheckCuda(code, error);
}

at::Tensor CudaRanks::AddUp(const at::Tensor& part,
                            at::ScalarType dtype) const {
  const NcclRanks ranks = nccl();
  const int64_t numel = part.numel();
  const int64_t piece = (numel + ranks.size - 1) / ranks.size;
  at::Tensor pieces = part.contiguous().view({-1});
  if (piece * ranks.size > numel) {
    pieces = at::constant_pad_nd(pieces, {0, piece * ranks.size - numel});
  }
  const at::Tensor received = at::empty({ranks.size, piece}, pieces.options());
  char error[kNcclErrorBytes] = "";
  Check(api_.launch_exchange(&ranks,
                             pieces.const_data_ptr(),
                             received.data_ptr(),
                             piece * static_cast<int64_t>(sizeof(float)),
                             nullptr,
                             error),
        error);
  at::Tensor sum = received[0];
  for (int64_t rank = 1; rank < ranks.size; ++rank) sum.add_(received[rank]);
  const at::Tensor all =
      at::empty({ranks.size, piece}, part.options().dtype(dtype));
  const at::Tensor own = all[ranks.rank];
  own.copy_(sum);
  const NcclGather gather{.part = own.const_data_ptr(),
                          .all = all.data_ptr(),
                          .bytes = static_cast<int64_t>(own.nbytes())};
  Check(api_.launch_all_gather(&ranks, &gather, 1, nullptr, error), error);
  return all.view({-1}).narrow(0, 0, numel).view(part.sizes());
}

}  // namespace dapd
