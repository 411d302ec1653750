#include "common/generation/cuda/cuda_prefill.h"

#include <algorithm>

#include "common/kernels/decode_attention_math.h"
#include "common/model/fast/flash_attention.h"
#include "common/model/fast/layer_math.h"
#include "common/model/rope.h"
#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

// The prompts' tokens side by side and, up to a whole number of blocks, unused
// ones, which are a sequence of their own.
struct PassTokens {
  std::vector<int64_t> offsets;
  at::Tensor ids;        // [N] int64
  at::Tensor positions;  // [N] int64
  at::Tensor last_rows;  // [kPrefillPrompts] int64; unused ones repeat row 0
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
  const int64_t rows = (tokens + pass.block - 1) / pass.block * pass.block;
  if (rows > tokens) pass.offsets.push_back(rows);
  // One copy for all three.
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

// y = x w^T, rounded to the dtype of y only.
void MultiplyInto(at::Tensor& y, const at::Tensor& x, const at::Tensor& w) {
  const at::ScalarType dtype = y.scalar_type();
  if (dtype == x.scalar_type()) {
    at::mm_out(y, x, w.t());
  } else if (x.is_cuda()) {
    at::mm_out(y, x, w.t(), dtype);
  } else {
    at::mm_out(y, x.to(dtype), w.to(dtype).t());
  }
}

// y = [x, x A^T] W^T + bias, block by block; with `sum` the products of all
// ranks. x [N, in] -> [N, out].
at::Tensor Multiply(const PackedLinear& linear,
                    const at::Tensor& x,
                    int64_t block,
                    const SumOfParts& sum = nullptr) {
  const int64_t rows = x.size(0);
  at::Tensor wide = x;
  if (linear.lora > 0) {
    wide = at::empty({rows, linear.in + linear.lora}, x.options());
    wide.narrow(1, 0, linear.in).copy_(x);
  }
  at::Tensor y =
      at::empty({rows, linear.weight.size(0)},
                x.options().dtype(sum ? at::kFloat : x.scalar_type()));
  for (int64_t row = 0; row < rows; row += block) {
    const at::Tensor own = wide.narrow(0, row, block);
    if (linear.lora > 0) {
      at::Tensor columns = own.narrow(1, linear.in, linear.lora);
      at::mm_out(columns, own.narrow(1, 0, linear.in), linear.lora_a.t());
    }
    at::Tensor result = y.narrow(0, row, block);
    MultiplyInto(result, own, linear.weight);
  }
  if (sum) y = sum(y);
  if (linear.bias.defined()) y.add_(linear.bias);
  return y;
}

// [N, columns] of a stacked product as heads, [N, heads, D].
at::Tensor Heads(const at::Tensor& stacked,
                 int64_t first,
                 int64_t heads,
                 int64_t head_dim) {
  return stacked.narrow(1, first * head_dim, heads * head_dim)
      .unflatten(1, {heads, head_dim});
}

// hidden [rows, hidden] -> [rows, vocab] float32, not rounded on the way.
at::Tensor FloatLogits(const at::Tensor& hidden, const at::Tensor& head) {
  if (hidden.is_cuda() && hidden.scalar_type() != at::kFloat) {
    return at::mm(hidden, head.t(), at::kFloat);
  }
  return at::mm(hidden.to(at::kFloat), head.to(at::kFloat).t());
}

// A prompt's keys and values [layers, 2, K, tokens, D] into its pages, all
// layers at once.
void CopyToPages(const at::Tensor& from, const at::Tensor& pages) {
  const int64_t tokens = from.size(3);
  const int64_t full = tokens / kSplitTokens;
  const int64_t rest = tokens % kSplitTokens;
  if (full > 0) {
    pages.narrow(0, 0, full)
        .copy_(from.narrow(3, 0, full * kSplitTokens)
                   .unflatten(3, {full, kSplitTokens})
                   .permute({3, 0, 1, 2, 4, 5}));
  }
  if (rest > 0) {
    pages[full]
        .narrow(3, 0, rest)
        .copy_(from.narrow(3, full * kSplitTokens, rest));
  }
}

}  // namespace

at::Tensor PrefillPrompts(const ModelWeights& weights,
                          const CudaPackedWeights& packed,
                          std::span<const PrefillPrompt> prompts,
                          int64_t rows_of_products,
                          const SumOfParts& sum) {
  const at::NoGradGuard no_grad;
  const ModelConfig& config = weights.config;
  const PassTokens pass = TokensOf(prompts, rows_of_products, weights.device());
  const FlashAttention attention(pass.offsets, weights.device());
  const RotaryAngles angles =
      MakeRotaryAngles(config, pass.positions, weights.dtype());
  at::Tensor x = weights.embedding.index_select(0, pass.ids);
  const int64_t rows = x.size(0);
  const int64_t heads = config.num_heads;
  const int64_t kv_heads = config.num_kv_heads;
  const int64_t dim = config.head_dim;
  const at::Tensor cached =
      at::empty({config.num_layers, 2, kv_heads, rows, dim}, x.options());
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerWeights& own = weights.layers[static_cast<size_t>(layer)];
    const auto& [qkv_linear, o, gate_up, down] =
        packed.layers()[static_cast<size_t>(layer)];
    const at::Tensor qkv = Multiply(
        qkv_linear, Norm(x, own.input_norm, config.rms_norm_eps), pass.block);
    const at::Tensor q = NormAndRotate(Heads(qkv, 0, heads, dim).contiguous(),
                                       own.q_norm,
                                       config.rms_norm_eps,
                                       angles);
    const at::Tensor k =
        NormAndRotate(Heads(qkv, heads, kv_heads, dim).contiguous(),
                      own.k_norm,
                      config.rms_norm_eps,
                      angles);
    const at::Tensor v = Heads(qkv, heads + kv_heads, kv_heads, dim);
    cached[layer][0].copy_(k.transpose(0, 1));
    cached[layer][1].copy_(v.transpose(0, 1));
    AttentionStatistics unused;
    const at::Tensor attended =
        attention.Forward(q, k, v, &unused).reshape({rows, heads * dim});
    x = Multiply(o, attended, pass.block, sum).add_(x);
    const at::Tensor both =
        Multiply(gate_up,
                 Norm(x, own.post_attention_norm, config.rms_norm_eps),
                 pass.block);
    const std::vector<at::Tensor> gate_and_up = both.chunk(2, 1);
    x = Multiply(down,
                 at::silu(gate_and_up[0]).mul_(gate_and_up[1]).contiguous(),
                 pass.block,
                 sum)
            .add_(x);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    CopyToPages(cached.narrow(
                    3, pass.offsets[i], pass.offsets[i + 1] - pass.offsets[i]),
                prompts[i].pages);
  }
  const at::Tensor last = Norm(x.index_select(0, pass.last_rows),
                               weights.final_norm,
                               config.rms_norm_eps);
  return FloatLogits(last, weights.head)
      .narrow(0, 0, static_cast<int64_t>(prompts.size()));
}

}  // namespace dapd
