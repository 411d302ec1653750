#include "common/generation/cuda/cuda_prefill.h"

#include <algorithm>

#include "common/kernels/decode_attention_math.h"
#include "common/model/fast/layer_pass.h"
#include "common/model/rope.h"
#include "common/model/variable_length_attention.h"
#include "common/tensor/device_copy.h"
#include "common/tensor/float8_tensor.h"

namespace dapd {
namespace {

// The prompts' tokens side by side, padded to a whole number of blocks with
// unused tokens, which are a sequence of their own.
struct PassTokens {
  std::vector<int64_t> offsets;
  at::Tensor ids;        // [N] int64
  at::Tensor positions;  // [N] int64
  at::Tensor last_rows;  // [kPrefillPrompts] int64; unused entries are 0
  int64_t block = 0;     // rows of a product
};

PassTokens TokensOf(std::span<const PrefillPrompt> prompts,
                    int64_t rows_of_products,
                    at::Device device) {
  TORCH_CHECK(!prompts.empty() &&
                  static_cast<int64_t>(prompts.size()) <= kPrefillPrompts,
              "[cuda_prefill] ",
              prompts.size(),
              " prompts in a pass");
  PassTokens pass;
  pass.offsets.push_back(0);
  for (const PrefillPrompt& prompt : prompts) {
    pass.offsets.push_back(pass.offsets.back() +
                           static_cast<int64_t>(prompt.ids.size()));
  }
  const int64_t tokens = pass.offsets.back();
  pass.block = rows_of_products > 0 ? rows_of_products : tokens;
  const int64_t rows = RowsOfPrefill(tokens, rows_of_products);
  if (rows > tokens) pass.offsets.push_back(rows);
  // All three tensors are uploaded with one copy.
  at::Tensor all = at::zeros({2 * rows + kPrefillPrompts}, at::kLong);
  auto* ids = all.mutable_data_ptr<int64_t>();
  int64_t* positions = ids + rows;
  int64_t* last_rows = positions + rows;
  for (size_t i = 0; i < prompts.size(); ++i) {
    ids = std::ranges::copy(prompts[i].ids, ids).out;
    for (size_t t = 0; t < prompts[i].ids.size(); ++t) {
      *positions++ = static_cast<int64_t>(t);
    }
    last_rows[i] = pass.offsets[i + 1] - 1;
  }
  const at::Tensor copied = ToDevice(all, device);
  pass.ids = copied.narrow(0, 0, rows);
  pass.positions = copied.narrow(0, rows, rows);
  pass.last_rows = copied.narrow(0, 2 * rows, kPrefillPrompts);
  return pass;
}

// Computes hidden [rows, hidden] -> [rows, vocab] float32 without rounding in
// between.
at::Tensor FloatLogits(const at::Tensor& hidden, const at::Tensor& head) {
  if (hidden.is_cuda() && hidden.scalar_type() != at::kFloat) {
    return at::mm(hidden, head.t(), at::kFloat);
  }
  return at::mm(hidden.to(at::kFloat), head.to(at::kFloat).t());
}

// Returns the rows in front of the tokens behind a prompt's first, filled up to
// whole chunks of ScoreRows. The prompt has the rows from `begin` to `end`.
at::Tensor RowsToScore(int64_t begin,
                       int64_t end,
                       const at::TensorOptions& options) {
  const int64_t rows = end - 1 - begin;
  if (rows == 0) return at::empty({0}, options);
  const int64_t filled = (rows + kScoredRows - 1) / kScoredRows * kScoredRows;
  return at::arange(begin, begin + filled, options).clamp_max(end - 2);
}

// Copies a prompt's keys and values [layers, 2, K, tokens, width] into its
// pages [pages, layers, 2, K, kPageTokens, width], all layers at once.
void CopyToPages(const at::Tensor& from, const at::Tensor& pages) {
  const int64_t tokens = from.size(3);
  const int64_t full = tokens / kPageTokens;
  const int64_t rest = tokens % kPageTokens;
  if (full > 0) {
    pages.narrow(0, 0, full)
        .copy_(from.narrow(3, 0, full * kPageTokens)
                   .unflatten(3, {full, kPageTokens})
                   .permute({3, 0, 1, 2, 4, 5}));
  }
  if (rest > 0) {
    pages[full]
        .narrow(3, 0, rest)
        .copy_(from.narrow(3, full * kPageTokens, rest));
  }
}

// The keys and values of a pass, [layers, 2, K, rows, D], in the form of its
// pages.
class PassKeysAndValues {
 public:
  PassKeysAndValues(const ModelConfig& config,
                    int64_t rows,
                    const at::TensorOptions& options,
                    bool is_float8)
      : head_dim_(config.head_dim), is_float8_(is_float8) {
    const auto take = [&](int64_t width, at::ScalarType type) {
      return at::empty({config.num_layers, 2, config.num_kv_heads, rows, width},
                       options.dtype(type));
    };
    numbers_ = take(head_dim_,
                    is_float8 ? at::kFloat8_e4m3fn
                              : c10::typeMetaToScalarType(options.dtype()));
    if (is_float8) scales_ = take(1, at::kBFloat16);
  }

  // Takes a layer's keys (part 0) or values (part 1), [rows, K, D].
  void Put(int64_t layer, int64_t part, const at::Tensor& from) {
    const at::Tensor by_head = from.transpose(0, 1);
    if (!is_float8_) {
      numbers_[layer][part].copy_(by_head);
      return;
    }
    const Float8Tensor rounded = RoundToFloat8(by_head);
    numbers_[layer][part].copy_(rounded.numbers);
    scales_[layer][part].copy_(rounded.scales);
  }

  // Copies rows [begin, end) into a prompt's pages.
  void Copy(int64_t begin, int64_t end, const at::Tensor& pages) const {
    const at::Tensor numbers = numbers_.narrow(3, begin, end - begin);
    if (!is_float8_) return CopyToPages(numbers, pages);
    const int64_t bytes = kPageTokens * head_dim_;
    CopyToPages(numbers,
                pages.narrow(4, 0, bytes)
                    .view(at::kFloat8_e4m3fn)
                    .unflatten(4, {kPageTokens, head_dim_}));
    CopyToPages(scales_.narrow(3, begin, end - begin),
                pages.narrow(4, bytes, pages.size(4) - bytes)
                    .view(at::kBFloat16)
                    .unsqueeze(5));
  }

 private:
  int64_t head_dim_;
  bool is_float8_;
  at::Tensor numbers_;
  at::Tensor scales_;  // of Float8 numbers: [layers, 2, K, rows, 1]
};

}  // namespace

at::Tensor PrefillPrompts(const ModelWeights& weights,
                          const PackedWeights& packed,
                          std::span<const PrefillPrompt> prompts,
                          int64_t rows_of_products,
                          const SumOfParts& sum) {
  const at::NoGradGuard no_grad;
  const ModelConfig& config = weights.config;
  const PassTokens pass = TokensOf(prompts, rows_of_products, weights.device());
  const VariableLengthAttention attention(pass.offsets, weights.device());
  const RotaryAngles angles =
      MakeRotaryAngles(config, pass.positions, weights.dtype());
  ResidualStream stream{weights.embedding.index_select(0, pass.ids)};
  PassKeysAndValues cached(config,
                           pass.ids.size(0),
                           stream.x.options(),
                           prompts.front().pages.scalar_type() == at::kByte);
  const PackedPass how{.block = pass.block, .sum = sum};
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    LayerPass(config, weights.layers[index], angles)
        .Forward(
            PackedProjections(packed.layers()[index], how),
            [&](const at::Tensor& q,
                const at::Tensor& k,
                const at::Tensor& v,
                AttentionStatistics* statistics) {
              cached.Put(layer, 0, k);
              cached.Put(layer, 1, v);
              return attention.Forward(q, k, v, statistics);
            },
            /*rows=*/{},
            &stream,
            /*activations=*/nullptr);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    cached.Copy(pass.offsets[i], pass.offsets[i + 1], prompts[i].pages);
  }
  const auto logits = [&](const at::Tensor& rows) {
    ResidualStream some{stream.x.index_select(0, rows),
                        stream.delta.index_select(0, rows)};
    return FloatLogits(some.Norm(weights.final_norm, config.rms_norm_eps),
                       weights.head);
  };
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].scores == nullptr) continue;
    const at::Tensor rows =
        RowsToScore(pass.offsets[i], pass.offsets[i + 1], pass.ids.options());
    *prompts[i].scores =
        ScoreRows(rows, pass.ids.index_select(0, rows + 1), logits);
  }
  return logits(pass.last_rows)
      .narrow(0, 0, static_cast<int64_t>(prompts.size()));
}

}  // namespace dapd
