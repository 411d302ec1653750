// Runs the products and the attention of a decode step of Qwen3-4B, all layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/kernels/cuda/bulk_product.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/skinny_product.h"
#include "common/kernels/decode_attention_math.h"
#include "tests/benchmarks/gpu_timing.h"

namespace dapd {

inline constexpr int64_t kRows = 32;
inline constexpr int64_t kLayers = 36;

class Products {
 public:
  Products() {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (const auto& [out, in] : kShapes) {
        weights_.push_back(at::randn({out, in}, OnGpu(at::kBFloat16)) * 0.02);
        bytes_ += 2 * out * in;
      }
    }
    for (const auto& [out, in] : kShapes) {
      inputs_.push_back(at::randn({kRows, in}, OnGpu(at::kBFloat16)));
      results_.push_back(at::empty({kRows, out}, OnGpu(at::kBFloat16)));
    }
  }

  int64_t bytes() const { return bytes_; }

  enum class By { kOurs, kBulk, kLibrary };
  static By Parse(const std::string& name) {
    return name == "library" ? By::kLibrary
           : name == "bulk"  ? By::kBulk
                             : By::kOurs;
  }

  void Multiply(int64_t rows, By by) {
    for (size_t i = 0; i < weights_.size(); ++i) {
      const at::Tensor x = inputs_[i % std::size(kShapes)].narrow(0, 0, rows);
      at::Tensor y = results_[i % std::size(kShapes)].narrow(0, 0, rows);
      if (by == By::kLibrary) {
        at::mm_out(y, x, weights_[i].t());
        continue;
      }
      const CudaProduct product{.rows = rows,
                                .inner = x.size(1),
                                .cols = y.size(1),
                                .x = x.const_data_ptr(),
                                .x_stride = x.size(1),
                                .w = weights_[i].const_data_ptr(),
                                .w_stride = x.size(1),
                                .y = y.data_ptr(),
                                .y_stride = y.size(1),
                                .number = CudaNumber::kBFloat16};
      const auto multiply = by == By::kBulk ? multiply_bulk_ : multiply_;
      TORCH_CHECK(multiply(&product, nullptr) == 0,
                  "a product was not launched");
    }
  }

 private:
  // The products are q, k and v; o; gate and up; down.
  static constexpr int64_t kShapes[][2] = {
      {6144, 2560}, {2560, 4096}, {19456, 2560}, {2560, 9728}};

  decltype(&DapdCudaSkinnyProduct) multiply_ =
      Find<decltype(DapdCudaSkinnyProduct)>("DapdCudaSkinnyProduct");
  decltype(&DapdCudaBulkProduct) multiply_bulk_ =
      Find<decltype(DapdCudaBulkProduct)>("DapdCudaBulkProduct");
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> results_;
  int64_t bytes_ = 0;
};

class Attention {
 public:
  Attention()
      : memory_(at::randn({kRows * kPages, kLayers * kPageBytes / 2},
                          OnGpu(at::kBFloat16))),
        q_(at::randn({kRows, kHeads * kHeadDim}, OnGpu(at::kBFloat16))),
        out_(at::empty_like(q_)),
        scratch_(at::empty(
            {DecodeAttentionScratch(kRows, kHeads, kHeadDim, kMaxTokens)},
            OnGpu(at::kFloat))),
        counters_(at::zeros({kRows * kKvHeads}, OnGpu(at::kInt))),
        slots_(at::arange(kRows, OnGpu(at::kInt))) {
    std::vector<int64_t> addresses;
    for (int64_t page = 0; page < memory_.size(0); ++page) {
      addresses.push_back(
          reinterpret_cast<int64_t>(memory_[page].const_data_ptr()));
    }
    pages_ = at::tensor(addresses, at::kLong).to(at::kCUDA);
  }

  static int64_t Bytes(int64_t rows, int64_t tokens) {
    return rows * tokens * kLayers * kPageBytes / kPageTokens;
  }

  // Gives each row `tokens` tokens from here on, at most kMaxTokens.
  void SetTokens(int64_t tokens) {
    positions_ = at::full({kRows}, tokens - 1, OnGpu(at::kInt));
    WaitForGpu();  // no launch in front may still write
  }
  // Runs attention for `rows` rows.
  void Attend(int64_t rows) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const DecodeAttentionArgs args{
          .rows = {rows,
                   slots_.const_data_ptr<int32_t>(),
                   positions_.const_data_ptr<int32_t>()},
          .q = q_.const_data_ptr(),
          .cache = {static_cast<void* const*>(pages_.const_data_ptr()),
                    kPages,
                    layer},
          .out = out_.data_ptr(),
          .scratch = scratch_.data_ptr<float>(),
          .counters = static_cast<uint32_t*>(counters_.data_ptr()),
          .q_stride = q_.size(1),
          .out_stride = out_.size(1),
          .heads = kHeads,
          .kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .max_tokens = kMaxTokens};
      TORCH_CHECK(attend_(&args, CudaNumber::kBFloat16, nullptr) == 0,
                  "attention was not launched");
    }
  }

 private:
  static constexpr int64_t kHeads = 32;
  static constexpr int64_t kKvHeads = 8;
  static constexpr int64_t kHeadDim = 128;
  static constexpr int64_t kMaxTokens = 1024;
  static constexpr int64_t kPages = kMaxTokens / kPageTokens;
  // A layer has keys and values of two bytes.
  static constexpr int64_t kPageBytes =
      2 * 2 * kKvHeads * kPageTokens * kHeadDim;

  decltype(&DapdCudaDecodeAttention) attend_ =
      Find<decltype(DapdCudaDecodeAttention)>("DapdCudaDecodeAttention");
  at::Tensor memory_;
  at::Tensor q_;
  at::Tensor out_;
  at::Tensor scratch_;
  at::Tensor counters_;
  at::Tensor slots_;
  at::Tensor positions_;
  at::Tensor pages_;
};

}  // namespace dapd
