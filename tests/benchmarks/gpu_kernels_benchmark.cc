// Runs single kernels of the GPU, for g2_decode.py, g5_sampling.py and
// g6_merge.py.
//
//   dapd_gpu_kernels_benchmark sample|merge|copy|products|attention
//
// sample: samples with top-k 20 and top-p 0.95 from 32 rows of 151,936 logits.
//   The ready line has "mismatches" (tokens that SampleToken does not give) and
//   "chi_square" (many draws of one row against its probabilities, by degree of
//   freedom).
// merge: merges an adapter of rank 64 into all weights of a Qwen3-4B trunk. The
//   ready line has "error", one weight's error against float64, relative to the
//   weights.
// copy: copies the bytes of merge.
// products: multiplies as a decode step of Qwen3-4B does in all layers. The
//   request {"rows", "by"} says for how many rows, and by which kernel: ours,
//   bulk (kernels/cuda/bulk_product.h) or library (LibTorch).
// attention: computes the attention of such a step in all layers. The request
//   {"rows", "tokens"} has the numbers of rows and of tokens.
// Rounds return "seconds" for one pass and "bytes" read and written.
#include <cmath>
#include <string>
#include <vector>

#include "common/generation/sampling.h"
#include "common/kernels/cuda/adapter_merge.h"
#include "common/kernels/cuda/sampling.h"
#include "common/model/weights/placement.h"
#include "common/tensor/aten.h"
#include "tests/benchmarks/contender.h"
#include "tests/benchmarks/gpu_timing.h"
#include "tests/benchmarks/step_kernels.h"

namespace dapd {
namespace {

constexpr int64_t kVocab = 151'936;
constexpr int64_t kRank = 64;
const SamplingParams kSampling = {
    .temperature = 1.1, .top_k = 20, .top_p = 0.95};

// Runs the sampler over rows that never end.
class Sampler {
 public:
  Sampler()
      : logits_(at::randn({kRows, kVocab}, OnGpu(at::kFloat)) * 3),
        scratch_(at::zeros({Find<decltype(DapdCudaSampleScratch)>(
                               "DapdCudaSampleScratch")(kRows, kVocab)},
                           OnGpu(at::kByte))),
        slots_(at::arange(kRows, OnGpu(at::kInt))),
        positions_(at::zeros({kRows}, OnGpu(at::kInt))),
        tokens_(at::zeros({kRows}, OnGpu(at::kInt))),
        sampled_(at::zeros({kRows, kSampledRing, 2}, OnGpu(at::kInt))) {
    for (int64_t row = 0; row < kRows; ++row) {
      host_.push_back({.seed = 1,
                       .sample = static_cast<uint32_t>(row),
                       .top_k = static_cast<int32_t>(kSampling.top_k),
                       .temperature = kSampling.temperature,
                       .top_p = kSampling.top_p,
                       .max_new_tokens = 1 << 30});
    }
    Restart();
  }

  // Starts again from the first token.
  void Restart() {
    sequences_ =
        at::from_blob(
            host_.data(),
            {static_cast<int64_t>(host_.size() * sizeof(CudaSequence))},
            at::kByte)
            .to(at::kCUDA);
  }

  void Sample() {
    const SampleArgs args{
        .num_rows = kRows,
        .slot_of_row = slots_.data_ptr<int32_t>(),
        .positions = positions_.data_ptr<int32_t>(),
        .tokens = tokens_.data_ptr<int32_t>(),
        .sequences = static_cast<CudaSequence*>(sequences_.data_ptr()),
        .sampled = static_cast<CudaSampled*>(sampled_.data_ptr()),
        .logits = logits_.const_data_ptr<float>(),
        .scratch = scratch_.data_ptr(),
        .vocab = kVocab,
        .num_tokens = kVocab};
    TORCH_CHECK(sample_(&args, nullptr) == 0, "sampling was not launched");
  }

  int64_t Mismatches() {
    Restart();
    Sample();
    const at::Tensor tokens = tokens_.cpu();
    const at::Tensor logits = logits_.cpu();
    int64_t mismatches = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      const double uniform =
          KeyedUniform({1, 0, 0, static_cast<uint32_t>(row)}, 0);
      const int32_t expected =
          SampleToken({logits[row].const_data_ptr<float>(), kVocab},
                      kVocab,
                      kSampling,
                      uniform);
      mismatches += tokens[row].item<int32_t>() != expected;
    }
    return mismatches;
  }

  // Draws from one row, which is copied to every row of the batch.
  double ChiSquare() {
    constexpr int kDraws = 2000;
    const at::Tensor kept = logits_.clone();
    logits_.copy_(kept[0].expand_as(logits_));
    const auto [best, ids] = kept[0].to(at::kDouble).topk(kSampling.top_k);
    const at::Tensor mass = at::softmax(best / kSampling.temperature, 0).cpu();
    const int64_t cut =
        (mass.cumsum(0) < kSampling.top_p).sum().item<int64_t>() + 1;
    const at::Tensor expected = mass.narrow(0, 0, cut) /
                                mass.narrow(0, 0, cut).sum() *
                                static_cast<double>(kDraws * kRows);
    at::Tensor counts = at::zeros({kVocab}, OnGpu(at::kDouble));
    Restart();
    for (int i = 0; i < kDraws; ++i) {
      Sample();
      counts.index_add_(
          0, tokens_.to(at::kLong), at::ones({kRows}, OnGpu(at::kDouble)));
    }
    logits_.copy_(kept);
    const at::Tensor found =
        counts.index_select(0, ids.narrow(0, 0, cut)).cpu();
    TORCH_CHECK(found.sum().item<double>() == kDraws * kRows,
                "a token was drawn that the filters exclude");
    return ((found - expected).square() / expected).sum().item<double>() /
           static_cast<double>(cut - 1);
  }

 private:
  decltype(&DapdCudaSample) sample_ =
      Find<decltype(DapdCudaSample)>("DapdCudaSample");
  at::Tensor logits_;
  at::Tensor scratch_;
  at::Tensor slots_;
  at::Tensor positions_;
  at::Tensor tokens_;
  at::Tensor sampled_;
  std::vector<CudaSequence> host_;
  at::Tensor sequences_;
};

// Holds weights of a Qwen3-4B trunk, an adapter and a place for their sum.
class Merger {
 public:
  explicit Merger(bool with_adapter) {
    constexpr int64_t kShapes[][2] = {{4096, 2560},
                                      {1024, 2560},
                                      {1024, 2560},
                                      {2560, 4096},
                                      {9728, 2560},
                                      {9728, 2560},
                                      {2560, 9728}};
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (const auto& [out, in] : kShapes) {
        base_.push_back(at::randn({out, in}, OnGpu(at::kBFloat16)) * 0.02);
        merged_.push_back(at::empty_like(base_.back()));
        bytes_ += 4 * out * in;
        if (!with_adapter) continue;
        a_.push_back(at::randn({kRank, in}, OnGpu(at::kBFloat16)) * 0.02);
        b_.push_back(at::randn({out, kRank}, OnGpu(at::kBFloat16)) * 0.02);
        bytes_ += 2 * kRank * (in + out);
        merges_.push_back({base_.back().const_data_ptr(),
                           a_.back().const_data_ptr(),
                           b_.back().const_data_ptr(),
                           merged_.back().data_ptr(),
                           out,
                           in,
                           kRank,
                           2.0F});
      }
    }
    if (!with_adapter) return;
    merge_ = Find<decltype(DapdCudaMergeAdapter)>("DapdCudaMergeAdapter");
    const auto workspace_bytes =
        Find<decltype(DapdCudaMergeWorkspace)>("DapdCudaMergeWorkspace");
    workspace_ = at::empty({workspace_bytes()}, OnGpu(at::kByte));
  }

  int64_t bytes() const { return bytes_; }

  void Merge() {
    char error[kCudaErrorBytes] = "";
    TORCH_CHECK(merge_(merges_.data(),
                       static_cast<int64_t>(merges_.size()),
                       CudaNumber::kBFloat16,
                       workspace_.data_ptr(),
                       nullptr,
                       error) == 0,
                error);
  }
  void Copy() {
    for (size_t i = 0; i < base_.size(); ++i) merged_[i].copy_(base_[i]);
  }
  // The error is relative to a weight, or to kCancelled for smaller weights:
  // where the update cancels the base, float32 loses more of a sum of kRank
  // products than a unit of the remaining value.
  double Error() {
    constexpr double kCancelled = 1e-4;
    Merge();
    const at::Tensor exact =
        base_[0].to(at::kDouble) +
        2.0 * b_[0].to(at::kDouble).mm(a_[0].to(at::kDouble));
    return ((merged_[0].to(at::kDouble) - exact).abs() /
            (exact.abs() + kCancelled))
        .max()
        .item<double>();
  }

 private:
  std::vector<at::Tensor> base_;
  std::vector<at::Tensor> merged_;
  std::vector<at::Tensor> a_;
  std::vector<at::Tensor> b_;
  std::vector<AdapterMerge> merges_;
  decltype(&DapdCudaMergeAdapter) merge_ = nullptr;
  at::Tensor workspace_;
  int64_t bytes_ = 0;
};

int Main(const std::string& mode) {
  TORCH_CHECK(OpenDevice({.device = DeviceChoice::kCuda}).ok(),
              "[gpu_kernels_benchmark] no CUDA device");
  if (mode == "sample") {
    Sampler sampler;
    return ServeRounds({{"mismatches", sampler.Mismatches()},
                        {"chi_square", sampler.ChiSquare()}},
                       [&](const std::string&) -> nlohmann::json {
                         return {
                             {"seconds", Time(200, [&] { sampler.Sample(); })},
                             {"bytes", kRows * kVocab * 4}};
                       });
  }
  if (mode == "products") {
    Products products;
    return ServeRounds({}, [&](const std::string& round) -> nlohmann::json {
      const auto asked = nlohmann::json::parse(round);
      const int64_t rows = asked.at("rows");
      const Products::By by = Products::Parse(asked.at("by"));
      return {{"seconds", Time(20, [&] { products.Multiply(rows, by); })},
              {"bytes", products.bytes()}};
    });
  }
  if (mode == "attention") {
    Attention attention;
    return ServeRounds({}, [&](const std::string& round) -> nlohmann::json {
      const auto asked = nlohmann::json::parse(round);
      const int64_t rows = asked.at("rows");
      const int64_t tokens = asked.at("tokens");
      attention.SetTokens(tokens);
      return {{"seconds", Time(20, [&] { attention.Attend(rows); })},
              {"bytes", Attention::Bytes(rows, tokens)}};
    });
  }
  Merger merger(mode == "merge");
  nlohmann::json ready = nlohmann::json::object();
  if (mode == "merge") ready["error"] = merger.Error();
  return ServeRounds(ready, [&](const std::string&) -> nlohmann::json {
    return {
        {"seconds",
         Time(3, [&] { mode == "merge" ? merger.Merge() : merger.Copy(); })},
        {"bytes", merger.bytes()}};
  });
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) {
  TORCH_CHECK(argc == 2,
              "usage: dapd_gpu_kernels_benchmark "
              "sample|merge|copy|products|attention");
  return dapd::Main(argv[1]);
}
