#include "common/generation/cuda/cuda_ranks.h"

#include "common/base/status_error.h"
#include "common/generation/decode_backend.h"
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

RanksAgree CudaRanks::agree() const {
  if (!share_a_model()) return {};
  return {.ask =
              [](void* asked, bool holds) {
                const auto answer =
                    HoldsOnAllRanks(holds, *static_cast<Collective*>(asked));
                if (!answer.ok()) return RanksAgree::kLost;
                return *answer ? RanksAgree::kYes : RanksAgree::kNo;
              },
          .asked = place_.collective};
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
  if (code == kCudaRanksRefuse && IsCudaMemoryWanted(error)) {
    throw WantOnARank({__func__, __FILE__, __LINE__}, error);
  }
  if (code != 0 && share_a_model()) Lose(error);
  CheckCuda(code, error);
}

void CudaRanks::CheckMemory(int code, const char* error) const {
  if (code == kCudaRanksLost) Check(code, error);
  CheckCuda(code, error);
}

void CudaRanks::OnEveryRank(const std::function<void()>& call,
                            const std::function<void()>& undo) const {
  if (!share_a_model()) return call();
  std::string want;
  try {
    call();
  } catch (const c10::OutOfMemoryError& error) {
    want = error.what_without_backtrace();
  } catch (const c10::Error& error) {
    Lose(error.what_without_backtrace());
  }
  const auto all_found = HoldsOnAllRanks(want.empty(), *place_.collective);
  if (!all_found.ok()) Lose(std::string(all_found.status().message()));
  if (*all_found) return;
  if (undo) undo();
  if (want.empty()) {
    want = "[cuda_ranks] another rank of this worker has no memory";
  }
  throw WantOnARank({__func__, __FILE__, __LINE__}, want);
}

CudaRankSums::CudaRankSums(const CudaRanks& ranks,
                           int64_t rows,
                           int64_t hidden,
                           int64_t count,
                           const at::TensorOptions& result)
    : ranks_(ranks),
      numel_(rows * hidden),
      piece_((numel_ + ranks.nccl().size - 1) / ranks.nccl().size),
      left_(count),
      received_(
          at::empty({ranks.nccl().size, piece_}, result.dtype(at::kFloat))),
      sums_(at::empty({2, ranks.nccl().size, piece_}, result)) {}

at::Tensor CudaRankSums::AddUp(const at::Tensor& part) {
  TORCH_CHECK(left_ > 0 && part.numel() == numel_,
              "[cuda_ranks] a pass takes other sums than it said");
  const int64_t padding = received_.numel() - numel_;
  at::Tensor parts = part.contiguous().view({-1});
  if (padding > 0) parts = at::constant_pad_nd(parts, {0, padding});
  return Launch(parts.const_data_ptr())
      .view({-1})
      .narrow(0, 0, numel_)
      .view(part.sizes());
}

void CudaRankSums::LaunchRest() {
  // The results' memory has at least the bytes of the parts.
  static_assert(2 * sizeof(at::BFloat16) >= sizeof(float));
  while (left_ > 0) Launch(sums_.const_data_ptr());
}

at::Tensor CudaRankSums::Launch(const void* parts) {
  const NcclRanks ranks = ranks_.nccl();
  const at::Tensor all = sums_[--left_ % 2];
  char error[kNcclErrorBytes] = "";
  ranks_.Check(
      ranks_.api_.launch_exchange(&ranks,
                                  parts,
                                  received_.data_ptr(),
                                  piece_ * static_cast<int64_t>(sizeof(float)),
                                  nullptr,
                                  error),
      error);
  at::Tensor sum = received_[0];
  for (int64_t rank = 1; rank < ranks.size; ++rank) sum.add_(received_[rank]);
  const at::Tensor own = all[ranks.rank];
  own.copy_(sum);
  const NcclGather gather{.part = own.const_data_ptr(),
                          .all = all.data_ptr(),
                          .bytes = static_cast<int64_t>(own.nbytes())};
  ranks_.Check(
      ranks_.api_.launch_all_gather(&ranks, &gather, 1, nullptr, error), error);
  return all;
}

}  // namespace dapd
