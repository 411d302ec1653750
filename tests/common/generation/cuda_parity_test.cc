// Compares every CUDA kernel of decoding, and the graphs made of them, with
// LibTorch's operations on the same GPU. Skips itself without a GPU or without
// our kernels.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/generation/aten/aten_backend.h"
#include "common/generation/cuda/cuda_decode_api.h"
#include "common/generation/cuda/make_cuda_decode_backend.h"
#include "common/generation/sampling.h"
#include "common/gpus/cuda_backend.h"
#include "common/kernels/cuda/bulk_product.h"
#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/decoder_layer.h"
#include "common/kernels/cuda/sampling.h"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/sampling_math.h"
#include "common/model/reference/decoder_layer.h"
#include "common/model/reference/token_logprobs.h"
#include "common/model/rope.h"
#include "common/model/weights/placement.h"
#include "common/tensor/float8_tensor.h"
#include "tests/fakes/cuda_precisions.h"
#include "tests/fakes/decode_requests.h"
#include "tests/fakes/model_on_device.h"

namespace dapd {
namespace {

class CudaDecodeParityTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    const auto device = DeviceOf(DeviceChoice::kCuda);
    if (!device.ok()) {
      GTEST_SKIP() << "no CUDA device: " << device.status().message();
    }
    if (!FindCudaDecodeApi()) {
      GTEST_SKIP() << "libdapd_cuda.so was built without nvcc";
    }
    SetUpCuda(/*deterministic=*/false, at::globalContext());
  }

  static at::TensorOptions On(at::ScalarType dtype) {
    return at::TensorOptions().device(at::kCUDA).dtype(dtype);
  }
  static at::Tensor Random(at::IntArrayRef shape) {
    return at::randn(shape, On(at::kFloat)).to(GetParam());
  }
  // Waits for all launches. In a step no launch writes weights or a sequence's
  // place, so kernels read these before they wait for the launch in front.
  static void Settle() { at::zeros({1}, On(at::kFloat)).item<float>(); }
  static CudaNumber Number() {
    return GetParam() == at::kFloat ? CudaNumber::kFloat32
                                    : CudaNumber::kBFloat16;
  }
  // The limits are a few units in the last place of the largest number, and of
  // all numbers together.
  static double Limit() { return GetParam() == at::kFloat ? 1e-5 : 4e-2; }
  static double Unit() { return GetParam() == at::kFloat ? 1e-5 : 1e-2; }

  // Both round at the same places, but the values before rounding differ in
  // float32's last place. So sometimes a number is off by a unit of its own
  // size, and so are its products.
  static void ExpectClose(const char* what,
                          const at::Tensor& ours,
                          const at::Tensor& expected) {
    const at::Tensor wide = expected.to(at::kDouble);
    const at::Tensor difference = ours.to(at::kDouble) - wide;
    const double error = difference.abs().max().item<double>() /
                         std::max(1.0, wide.abs().max().item<double>());
    const double overall = (difference.norm() / wide.norm()).item<double>();
    std::cout << what << ": largest error " << error << ", of all numbers "
              << overall << "\n";
    EXPECT_LT(error, Limit()) << what;
    EXPECT_LT(overall, Unit()) << what;
  }

  template <typename Function>
  static Function* Find(const char* name) {
    auto* found = reinterpret_cast<Function*>(CudaSymbol(name));
    TORCH_CHECK(found != nullptr, name);
    return found;
  }
};

// Has the pages of one layer for `slots` slots, with the table of their
// addresses.
struct Pages {
  at::Tensor memory;  // [slots, pages, 1, 2, kv_heads, kPageTokens, head_dim]
  at::Tensor table;   // [slots, pages] addresses

  Pages(int64_t slots,
        int64_t pages,
        int64_t kv_heads,
        int64_t head_dim,
        const at::TensorOptions& options)
      : memory(at::zeros({slots, pages, 1, 2, kv_heads, kPageTokens, head_dim},
                         options)),
        table(at::empty({slots, pages}, at::kLong)) {
    for (int64_t slot = 0; slot < slots; ++slot) {
      for (int64_t page = 0; page < pages; ++page) {
        table[slot][page] =
            reinterpret_cast<int64_t>(memory[slot][page].data_ptr());
      }
    }
    table = table.to(at::kCUDA);
  }
  CudaKvPages View() const {
    return {static_cast<void* const*>(table.data_ptr()), table.size(1), 0};
  }
  // Returns [kv_heads, tokens, head_dim] of a slot; part 0 is keys, part 1
  // values.
  at::Tensor Cached(int64_t slot, int64_t part, int64_t tokens) const {
    return memory[slot]
        .select(1, 0)
        .select(1, part)
        .transpose(0, 1)
        .flatten(1, 2)
        .narrow(1, 0, tokens);
  }
};

struct Geometry {
  int64_t heads, kv_heads, head_dim;
};

// The numbers of `pages` as Float8, at addresses of their own.
struct Float8Pages {
  at::Tensor memory;  // [slots, pages, 1, 2, kv_heads, Float8PartBytes]
  at::Tensor table;   // [slots, pages] addresses

  explicit Float8Pages(const Pages& pages) {
    const Float8Tensor rounded = RoundToFloat8(pages.memory);
    const at::Tensor numbers = rounded.numbers.view(at::kByte).flatten(5);
    const at::Tensor scales =
        rounded.scales.squeeze(-1).contiguous().view(at::kByte);
    memory = at::cat({numbers, scales}, 5);
    const at::Tensor first =
        at::empty({memory.size(0), memory.size(1)}, at::kLong);
    for (int64_t slot = 0; slot < first.size(0); ++slot) {
      for (int64_t page = 0; page < first.size(1); ++page) {
        first[slot][page] =
            reinterpret_cast<int64_t>(memory[slot][page].data_ptr());
      }
    }
    table = first.to(at::kCUDA);
  }
  CudaKvPages View() const {
    return {static_cast<void* const*>(table.data_ptr()),
            table.size(1),
            0,
            /*is_float8=*/true};
  }
};

// The kernel that reads Float8 gives the bits of the kernel that reads their
// values in bfloat16.
TEST_P(CudaDecodeParityTest, AttentionOverFloat8) {
  if (GetParam() == at::kFloat) GTEST_SKIP() << "for bfloat16 only";
  for (const auto& [heads, kv_heads, head_dim] : {Geometry{32, 8, 128},
                                                  Geometry{14, 2, 64},
                                                  Geometry{3, 3, 80},
                                                  Geometry{8, 1, 256}}) {
    const std::vector<int32_t> positions = {0, 127, 128, 1000, 7777, 8191};
    const auto rows = static_cast<int64_t>(positions.size());
    const int64_t capacity = 8192;
    const Pages pages(
        rows, capacity / kPageTokens, kv_heads, head_dim, On(GetParam()));
    pages.memory.copy_(ThroughFloat8(at::randn_like(pages.memory)));
    const Float8Pages in_float8(pages);
    const at::Tensor q = Random({rows, heads * head_dim});
    const at::Tensor slots = at::arange(rows, On(at::kInt));
    const at::Tensor device_positions =
        at::tensor(positions, at::kInt).to(at::kCUDA);
    const auto scratch_floats = Find<decltype(DapdCudaDecodeAttentionScratch)>(
        "DapdCudaDecodeAttentionScratch")(rows, heads, head_dim, capacity);
    const at::Tensor scratch = at::empty({scratch_floats}, On(at::kFloat));
    const at::Tensor counters = at::zeros({64}, On(at::kInt));
    const auto attend = [&](const CudaKvPages& cache) {
      const at::Tensor out = at::zeros_like(q);
      const DecodeAttentionArgs args{
          .rows = {rows,
                   slots.data_ptr<int32_t>(),
                   device_positions.data_ptr<int32_t>()},
          .q = q.data_ptr(),
          .cache = cache,
          .out = out.data_ptr(),
          .scratch = scratch.data_ptr<float>(),
          .counters = static_cast<uint32_t*>(counters.data_ptr()),
          .q_stride = q.size(1),
          .out_stride = out.size(1),
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .max_tokens = capacity};
      Settle();
      EXPECT_EQ(Find<decltype(DapdCudaDecodeAttention)>(
                    "DapdCudaDecodeAttention")(&args, Number(), nullptr),
                0);
      return out;
    };
    EXPECT_TRUE(at::equal(attend(in_float8.View()), attend(pages.View())))
        << "head dimension " << head_dim;
  }
}

TEST_P(CudaDecodeParityTest, ResidualNorm) {
  const at::Tensor x = Random({3, 2560});
  const at::Tensor delta = Random({3, 2560});
  const at::Tensor bias = Random({2560});
  const at::Tensor weight = Random({2560});
  const at::Tensor sum = x + (delta + bias);
  at::Tensor out = at::zeros({3, 2600}, x.options());
  const ResidualNormArgs args{.num_rows = 3,
                              .x = x.data_ptr(),
                              .delta = delta.data_ptr(),
                              .bias = bias.data_ptr(),
                              .weight = weight.data_ptr(),
                              .out = out.data_ptr(),
                              .hidden = 2560,
                              .out_stride = 2600,
                              .eps = 1e-6F};
  Settle();
  ASSERT_EQ(Find<decltype(DapdCudaResidualNorm)>("DapdCudaResidualNorm")(
                &args, Number(), nullptr),
            0);
  ExpectClose("residual", x, sum);
  ExpectClose("norm", out.narrow(1, 0, 2560), RmsNorm(sum, weight, 1e-6));
  EXPECT_EQ(out.narrow(1, 2560, 40).abs().max().item<double>(), 0.0);
}

TEST_P(CudaDecodeParityTest, SwiGlu) {
  const at::Tensor gate_up = Random({3, 2 * 9728});
  at::Tensor out = at::zeros({3, 9728}, gate_up.options());
  const SwiGluArgs args{.num_rows = 3,
                        .gate_up = gate_up.data_ptr(),
                        .out = out.data_ptr(),
                        .intermediate = 9728,
                        .out_stride = 9728};
  ASSERT_EQ(Find<decltype(DapdCudaSwiGlu)>("DapdCudaSwiGlu")(
                &args, Number(), nullptr),
            0);
  ExpectClose(
      "swiglu",
      out,
      at::silu(gate_up.narrow(1, 0, 9728)) * gate_up.narrow(1, 9728, 9728));
}

TEST_P(CudaDecodeParityTest, QkvAndAttention) {
  for (const auto& [heads, kv_heads, head_dim] : {Geometry{32, 8, 128},
                                                  Geometry{14, 2, 64},
                                                  Geometry{3, 3, 80},
                                                  Geometry{16, 2, 96},
                                                  Geometry{8, 1, 256}}) {
    // There are so many splits that a block takes several splits, of one row or
    // of two rows.
    const std::vector<int32_t> positions = {
        0, 127, 128, 1000, 7777, 8191, 8000};
    const auto rows = static_cast<int64_t>(positions.size());
    const int64_t capacity = 8192;
    const Pages pages(
        rows, capacity / kPageTokens, kv_heads, head_dim, On(GetParam()));
    // Every slot has a past.
    pages.memory.copy_(at::randn_like(pages.memory));
    const at::Tensor qkv = Random({rows, (heads + 2 * kv_heads) * head_dim});
    const at::Tensor before = qkv.clone();
    const at::Tensor q_norm = Random({head_dim});
    const at::Tensor k_norm = Random({head_dim});
    ModelConfig config;
    config.head_dim = head_dim;
    const RotaryAngles angles = MakeRotaryAngles(
        config, at::arange(capacity, On(at::kLong)), GetParam());
    const at::Tensor slots = at::arange(rows, On(at::kInt));
    const at::Tensor device_positions =
        at::tensor(positions, at::kInt).to(at::kCUDA);
    const CudaRows which{
        rows, slots.data_ptr<int32_t>(), device_positions.data_ptr<int32_t>()};
    const QkvArgs qkv_args{.rows = which,
                           .qkv = qkv.data_ptr(),
                           .q_norm = q_norm.data_ptr(),
                           .k_norm = k_norm.data_ptr(),
                           .cosine = angles.cos.data_ptr(),
                           .sine = angles.sin.data_ptr(),
                           .cache = pages.View(),
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .head_dim = head_dim,
                           .eps = 1e-6F};
    Settle();
    ASSERT_EQ(Find<decltype(DapdCudaQkv)>("DapdCudaQkv")(
                  &qkv_args, Number(), nullptr),
              0);
    const auto scratch_floats = Find<decltype(DapdCudaDecodeAttentionScratch)>(
        "DapdCudaDecodeAttentionScratch")(rows, heads, head_dim, capacity);
    const at::Tensor scratch = at::empty({scratch_floats}, On(at::kFloat));
    const at::Tensor counters = at::zeros({64}, On(at::kInt));
    const at::Tensor out = at::zeros({rows, heads * head_dim}, qkv.options());
    const DecodeAttentionArgs args{
        .rows = which,
        .q = qkv.data_ptr(),
        .cache = pages.View(),
        .out = out.data_ptr(),
        .scratch = scratch.data_ptr<float>(),
        .counters = static_cast<uint32_t*>(counters.data_ptr()),
        .q_stride = qkv.size(1),
        .out_stride = out.size(1),
        .heads = heads,
        .kv_heads = kv_heads,
        .head_dim = head_dim,
        .max_tokens = capacity};
    ASSERT_EQ(Find<decltype(DapdCudaDecodeAttention)>(
                  "DapdCudaDecodeAttention")(&args, Number(), nullptr),
              0);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = positions[static_cast<size_t>(row)];
      const RotaryAngles at_position{angles.cos.narrow(0, position, 1),
                                     angles.sin.narrow(0, position, 1)};
      const at::Tensor split = before[row].view({1, -1, head_dim});
      const at::Tensor q = ApplyRotary(
          RmsNorm(split.narrow(1, 0, heads), q_norm, 1e-6), at_position);
      const at::Tensor k = ApplyRotary(
          RmsNorm(split.narrow(1, heads, kv_heads), k_norm, 1e-6), at_position);
      const at::Tensor keys = pages.Cached(row, 0, position + 1);
      const at::Tensor values = pages.Cached(row, 1, position + 1);
      ExpectClose("q", qkv[row].narrow(0, 0, heads * head_dim), q.flatten());
      ExpectClose("k", keys.select(1, position), k[0]);
      ExpectClose("v",
                  values.select(1, position),
                  split[0].narrow(0, heads + kv_heads, kv_heads));
      const int64_t group = heads / kv_heads;
      const at::Tensor scores = q[0].to(at::kFloat)
                                    .view({kv_heads, group, head_dim})
                                    .bmm(keys.to(at::kFloat).transpose(1, 2)) /
                                std::sqrt(static_cast<double>(head_dim));
      ExpectClose("attention",
                  out[row],
                  at::softmax(scores, -1).bmm(values.to(at::kFloat)).flatten());
    }
  }
}

TEST_P(CudaDecodeParityTest, GraphsDecodeWhatLibTorchDoes) {
  for (const std::string family : {"qwen3", "qwen2", "llama"}) {
    const auto on_cpu = MakeDecodableModel(family, GetParam());
    const auto weights = OnDevice(*on_cpu, at::kCUDA);
    const auto adapter = std::make_shared<const Adapter>(
        OnDevice(*MakeAdapter(*on_cpu), at::kCUDA));
    std::shared_ptr<const ModelWeights> given = weights;
    const auto ours = MakeCudaDecodeBackend(given, {.slots = 4});
    ASSERT_NE(ours, nullptr);
    EXPECT_EQ(given, nullptr);
    ours->SetAdapter(adapter);
    const auto requests = MakeRequests();
    const auto answers = Generate(*ours, requests);
    if (GetParam() == at::kFloat) {
      AtenBackend slow(DecoderModel(weights), 4, 0);
      slow.SetAdapter(adapter);
      for (const auto& [request, answer] : Generate(slow, requests)) {
        EXPECT_EQ(answers.at(request).tokens, answer.tokens) << family;
      }
    }
    // A request alone gives the same tokens as beside others, and again.
    given = weights;
    const auto alone = MakeCudaDecodeBackend(given, {.slots = 4});
    alone->SetAdapter(adapter);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(Generate(*alone, {requests[i]}).at(0).tokens,
                answers.at(i).tokens);
    }
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 150; ++i) ids.push_back(i * 5 % 97);
    const std::vector<float> scored = ours->ScoreTokens(ids);
    const at::Tensor expected = TokenLogprobs(*weights, adapter.get(), ids);
    const double error =
        (at::tensor(scored) - expected.cpu()).abs().max().item<double>();
    std::cout << family << ": largest error of a log-probability " << error
              << "\n";
    EXPECT_LT(error, GetParam() == at::kFloat ? 2e-3 : 0.5);
  }
}

// A sequence goes to the host and back again and again, while others take its
// slots and its pages.
TEST_P(CudaDecodeParityTest, AnAnswerThatWasOnTheHostHasTheSameBits) {
  const auto weights = OnDevice(*EndlessModel(GetParam()), at::kCUDA);
  const DecodeRequest request = MakeRequest(200, 300, 1);
  const auto decode = [&](bool leaves) {
    std::shared_ptr<const ModelWeights> given = weights;
    const auto backend = MakeCudaDecodeBackend(given, {.slots = 4});
    Answer answer;
    int64_t slot = 0;
    EXPECT_TRUE(backend->Start(0, request));
    EXPECT_TRUE(backend->Reserve(0, request.MaxTokens()));
    while (answer.tokens.size() < 300) {
      for (const DecodedToken& token : backend->Step()) {
        if (token.slot != slot) continue;
        answer.tokens.push_back(token.token);
        answer.logprobs.push_back(token.logprob);
      }
      if (!leaves) continue;
      EXPECT_GT(backend->SwapOut(slot, 7), 0);
      const DecodeRequest other =
          MakeRequest(300, 40, static_cast<uint32_t>(answer.tokens.size()));
      EXPECT_TRUE(backend->Start(slot, other));
      EXPECT_TRUE(backend->Reserve(slot, other.MaxTokens()));
      backend->Step();
      backend->Stop(slot);
      slot = (slot + 1) % 4;
      EXPECT_TRUE(backend->SwapIn(slot, 7, request.MaxTokens()));
    }
    return answer;
  };
  const Answer expected = decode(false);
  const Answer found = decode(true);
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.logprobs, expected.logprobs);
}

// The head's product takes the form of bulk_product.h inside a graph and behind
// early launches, in bfloat16 on a device that has it.
TEST_P(CudaDecodeParityTest, GraphsDecodeWithBulkProducts) {
  const auto weights =
      OnDevice(*WideHeadModel(kLeastBulkCols + 8, GetParam()), at::kCUDA);
  const auto requests = MakeRequests();
  const CudaDecodeOptions options{.slots = 4, .bulk_products = true};
  std::shared_ptr<const ModelWeights> given = weights;
  const auto ours = MakeCudaDecodeBackend(given, options);
  ASSERT_NE(ours, nullptr);
  const auto answers = Generate(*ours, requests);
  given = weights;
  const auto alone = MakeCudaDecodeBackend(given, options);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(Generate(*alone, {requests[i]}).at(0).tokens,
              answers.at(i).tokens);
  }
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 150; ++i) ids.push_back(i * 13 % 2048);
  const std::vector<float> scored = ours->ScoreTokens(ids);
  const at::Tensor expected = TokenLogprobs(*weights, nullptr, ids);
  const double error =
      (at::tensor(scored) - expected.cpu()).abs().max().item<double>();
  std::cout << "largest error of a log-probability " << error << "\n";
  EXPECT_LT(error, GetParam() == at::kFloat ? 2e-3 : 0.5);
}

TEST_P(CudaDecodeParityTest, SampledTokensAreSampleTokens) {
  constexpr int64_t kVocab = 20'000;
  constexpr int64_t kKnown = 19'900;
  // In float32 the edge between two tokens is uncertain by this share of the
  // mass.
  constexpr double kEdge = 1e-6;
  const std::vector<SamplingParams> cases = {{0.0, 0, 1.0},
                                             {1.1, 20, 0.95},
                                             {1.0, 64, 1.0},
                                             {1.0, 0, 1.0},
                                             {1.1, 0, 0.95},
                                             {0.7, 500, 0.9}};
  const auto rows = static_cast<int64_t>(cases.size());
  const at::Tensor logits = at::randn({rows, kVocab}, On(at::kFloat)) * 3;
  const at::Tensor host_logits = logits.cpu();
  const at::Tensor slots = at::arange(rows, On(at::kInt));
  const at::Tensor positions = at::zeros({rows}, On(at::kInt));
  const at::Tensor tokens = at::zeros({rows}, On(at::kInt));
  const at::Tensor sampled = at::zeros({rows, kSampledRing, 2}, On(at::kInt));
  std::vector<CudaSequence> sequences;
  for (const SamplingParams& params : cases) {
    sequences.push_back({.seed = 5,
                         .top_k = static_cast<int32_t>(params.top_k),
                         .temperature = params.temperature,
                         .top_p = params.top_p,
                         .max_new_tokens = 1000});
  }
  const at::Tensor device_sequences =
      at::from_blob(
          sequences.data(),
          {static_cast<int64_t>(sequences.size() * sizeof(CudaSequence))},
          at::kByte)
          .to(at::kCUDA);
  const at::Tensor scratch =
      at::empty({Find<decltype(DapdCudaSampleScratch)>("DapdCudaSampleScratch")(
                    rows, kVocab)},
                On(at::kByte));
  const SampleArgs args{
      .num_rows = rows,
      .slot_of_row = slots.data_ptr<int32_t>(),
      .positions = positions.data_ptr<int32_t>(),
      .tokens = tokens.data_ptr<int32_t>(),
      .sequences = static_cast<CudaSequence*>(device_sequences.data_ptr()),
      .sampled = static_cast<CudaSampled*>(sampled.data_ptr()),
      .logits = logits.const_data_ptr<float>(),
      .scratch = scratch.data_ptr(),
      .vocab = kVocab,
      .num_tokens = kKnown};
  int64_t at_an_edge = 0;
  for (uint32_t draw = 0; draw < 200; ++draw) {
    ASSERT_EQ(Find<decltype(DapdCudaSample)>("DapdCudaSample")(&args, nullptr),
              0);
    const at::Tensor found = tokens.cpu();
    const at::Tensor recorded = sampled.cpu();
    for (int64_t row = 0; row < rows; ++row) {
      const std::span<const float> values(
          host_logits[row].const_data_ptr<float>(), kVocab);
      const SamplingParams& params = cases[static_cast<size_t>(row)];
      const double uniform = KeyedUniform({.seed = 5}, draw);
      const auto token_at = [&](double number) {
        return SampleToken(
            values, kKnown, params, std::clamp(number, 0.0, 1.0));
      };
      const int32_t token = found[row].item<int32_t>();
      if (token != token_at(uniform)) {
        // The general way weighs tokens in float32 (sampling_math.h): a uniform
        // number at the edge between two tokens may choose the neighbour.
        ASSERT_TRUE(params.temperature > 0.0 &&
                    (params.top_k == 0 || params.top_k > kMaxSortedTopK) &&
                    token >= 0 && token < kKnown)
            << "case " << row << ", draw " << draw;
        ASSERT_LE(values[token], values[token_at(uniform - kEdge)])
            << "case " << row << ", draw " << draw;
        ASSERT_GE(values[token], values[token_at(uniform + kEdge)])
            << "case " << row << ", draw " << draw;
        ++at_an_edge;
      }
      const at::Tensor entry = recorded[row][draw % kSampledRing];
      ASSERT_NEAR(entry.view(at::kFloat)[1].item<float>(),
                  LogProbability(values, token),
                  1e-4);
    }
  }
  std::cout << "tokens beside SampleToken's, at an edge: " << at_an_edge
            << "\n";
  EXPECT_LE(at_an_edge, 3);  // of 600; 0.02 to 0.1 are expected
}

INSTANTIATE_TEST_SUITE_P(Precisions,
                         CudaDecodeParityTest,
                         CudaPrecisions(),
                         CudaPrecisionName);

}  // namespace
}  // namespace dapd
