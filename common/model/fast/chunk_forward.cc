#include "common/model/fast/chunk_forward.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/model/fast/chunk_attention.h"
#include "common/model/fast/layer_pass.h"
#include "common/model/fast/packed_projections.h"
#include "common/model/fast/pass_products.h"
#include "common/model/fast/plain_projections.h"
#include "common/model/reference/decoder.h"
#include "common/model/rope.h"
#include "common/model/spec/executor_support.h"
#include "common/model/weights/layer_source.h"
#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

// Tokens side by side in a pass, and their positions.
struct PassInput {
  at::Tensor ids;        // [N] int64 on the model's device
  at::Tensor positions;  // [N] int64 on the model's device
};

// Returns memory for the ChunkStates::keys_values of `rows` rows.
at::Tensor MakeKeysValues(const ModelWeights& weights, int64_t rows) {
  const ModelConfig& config = weights.config;
  const int64_t heads = config.num_kv_heads;
  const auto make = [&](int64_t outer, int64_t inner) {
    return at::empty({config.num_layers, 2, outer, inner, config.head_dim},
                     weights.embedding.options());
  };
  return weights.device().is_cuda() ? make(rows, heads).transpose(2, 3)
                                    : make(heads, rows);
}

// The weights of a pass are `packed`, or, if that is null, the projections of
// `weights` and `adapter` (null: the base alone).
struct PassWeights {
  const ModelWeights& weights;
  const Adapter* adapter = nullptr;
  const PackedWeights* packed = nullptr;
  PackedPass packed_pass;

  std::unique_ptr<LayerProjections> Projections(
      size_t layer, const LayerWeights& whole) const {
    if (packed != nullptr) {
      return std::make_unique<PackedProjections>(packed->layers()[layer],
                                                 packed_pass);
    }
    return std::make_unique<PlainProjections>(
        LayerRecipeOf(weights.config, static_cast<int64_t>(layer)),
        whole,
        adapter == nullptr ? nullptr : &adapter->layers[layer],
        adapter == nullptr ? 0.0 : adapter->config.scale());
  }
};

// Runs one pass of chunks side by side, which take the first rows of `input`.
ChunkStates ForwardPass(const PassWeights& with,
                        const std::vector<AttendedChunk>& chunks,
                        const PassInput& input,
                        ChunkKeeps keeps) {
  const ModelWeights& weights = with.weights;
  const ModelConfig& config = weights.config;
  const int64_t rows = input.ids.size(0);
  // The constructor checks that the chunks fit into the rows.
  const ChunkAttention attention(chunks, rows, weights.device());
  const RotaryAngles angles =
      MakeRotaryAngles(config, input.positions, weights.dtype());
  ResidualStream stream{weights.embedding.index_select(0, input.ids)};
  ChunkStates states{.keys_values = MakeKeysValues(weights, rows)};
  if (keeps == ChunkKeeps::kLayerInputs) {
    states.layer_inputs = at::empty(
        {config.num_layers + 1, rows, config.hidden_size}, stream.x.options());
  }
  const auto keep_input = [&](int64_t layer) {
    if (states.layer_inputs.defined()) {
      states.layer_inputs[layer].copy_(stream.Sum());
    }
  };
  const auto walk = WalkLayers(weights, WalkKind::kForward);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    keep_input(layer);
    const LayerWeights whole = walk->Next(layer);
    const at::Tensor own = states.keys_values[layer];
    const auto attend = [&](const at::Tensor& q,
                            const at::Tensor& k,
                            const at::Tensor& v,
                            AttentionStatistics*) {
      own[0].copy_(k.transpose(0, 1));
      own[1].copy_(v.transpose(0, 1));
      return attention.Attend(layer, q, own[0], own[1]);
    };
    LayerPass(config, whole, angles)
        .Forward(*with.Projections(index, whole),
                 attend,
                 /*rows=*/{},
                 &stream,
                 /*activations=*/nullptr);
  }
  keep_input(config.num_layers);
  states.hidden = stream.Norm(weights.final_norm, config.rms_norm_eps);
  return states;
}

int64_t TokensOf(const std::vector<at::Tensor>& past) {
  int64_t tokens = 0;
  for (const at::Tensor& chunk : past) tokens += chunk.size(3);
  return tokens;
}

int64_t TokensOf(std::span<const NextChunk> chunks) {
  int64_t tokens = 0;
  for (const NextChunk& chunk : chunks) {
    tokens += static_cast<int64_t>(chunk.ids.size());
  }
  return tokens;
}

// Returns the ids and positions of all chunks, in one copy; the rows behind
// them repeat a first token.
PassInput InputOf(std::span<const NextChunk> chunks,
                  int64_t rows,
                  at::Device device) {
  at::Tensor both = at::zeros({2, rows}, at::kLong);
  auto* ids = both.mutable_data_ptr<int64_t>();
  int64_t* positions = ids + rows;
  for (const NextChunk& chunk : chunks) {
    ids = std::ranges::copy(chunk.ids, ids).out;
    for (size_t i = 0; i < chunk.ids.size(); ++i) {
      *positions++ = chunk.begin + static_cast<int64_t>(i);
    }
  }
  const at::Tensor copied = ToDevice(both, device);
  return {copied[0], copied[1]};
}

// Computes a chunk of a model that LayerPass does not compute, by the
// reference.
ChunkStates ForwardByReference(const ModelWeights& weights,
                               const Adapter* adapter,
                               const PassInput& input,
                               std::vector<at::Tensor> past,
                               ChunkKeeps keeps) {
  ChunkStates states{.keys_values = MakeKeysValues(weights, input.ids.size(0))};
  PastAttention attention(std::move(past), states.keys_values);
  const bool keeps_inputs = keeps == ChunkKeeps::kLayerInputs;
  std::vector<at::Tensor> inputs;
  const at::Tensor x = ForwardTrunk(weights,
                                    adapter,
                                    input.ids,
                                    input.positions,
                                    attention,
                                    /*sum=*/nullptr,
                                    keeps_inputs ? &inputs : nullptr);
  if (keeps_inputs) states.layer_inputs = at::stack(inputs);
  states.hidden = FinalNorm(weights, x);
  return states;
}

// Computes one chunk after the other, so that its bits do not depend on the
// other chunks: LibTorch's products do not promise that.
std::vector<ChunkStates> ForwardEachByReference(
    const ModelWeights& weights,
    const Adapter* adapter,
    std::span<const NextChunk> chunks,
    ChunkKeeps keeps) {
  const at::NoGradGuard no_grad;
  std::vector<ChunkStates> states;
  std::vector<std::vector<at::Tensor>> pasts;
  for (const NextChunk& chunk : chunks) {
    std::vector<at::Tensor>& past = pasts.emplace_back(chunk.past);
    if (chunk.parent >= 0) {
      const auto parent = static_cast<size_t>(chunk.parent);
      past = pasts.at(parent);
      past.push_back(states.at(parent).keys_values);
    }
    const PassInput input = InputOf(
        {&chunk, 1}, static_cast<int64_t>(chunk.ids.size()), weights.device());
    states.push_back(ForwardByReference(weights, adapter, input, past, keeps));
  }
  return states;
}

// Returns the states of the chunk that has the rows `range`.
ChunkStates StatesOf(const ChunkStates& pass,
                     const RowRange& range,
                     bool is_kept) {
  const auto part = [&](const at::Tensor& all, int64_t dim) {
    if (!all.defined()) return all;
    const at::Tensor own = all.narrow(dim, range.begin, range.tokens);
    const bool is_own = range.tokens == all.size(dim);
    return is_kept && !is_own ? own.clone() : own;
  };
  return {.keys_values = part(pass.keys_values, 3),
          .hidden = part(pass.hidden, 0),
          .layer_inputs = part(pass.layer_inputs, 1)};
}

std::vector<ChunkStates> ForwardTogether(const PassWeights& with,
                                         std::span<const NextChunk> chunks,
                                         int64_t rows,
                                         ChunkKeeps keeps) {
  const at::NoGradGuard no_grad;
  const at::Device device = with.weights.device();
  std::vector<AttendedChunk> attended;
  for (const NextChunk& chunk : chunks) {
    attended.push_back({.tokens = static_cast<int64_t>(chunk.ids.size()),
                        .past = chunk.past,
                        .parent = chunk.parent});
  }
  const ChunkStates pass = ForwardPass(
      with,
      attended,
      InputOf(chunks, device.is_cuda() ? rows : TokensOf(chunks), device),
      keeps);
  std::vector<ChunkStates> states;
  int64_t row = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const RowRange range = {row, attended[i].tokens};
    states.push_back(StatesOf(pass, range, chunks[i].is_kept));
    row += range.tokens;
  }
  return states;
}

}  // namespace

ChunkStates ForwardChunk(const ModelWeights& weights,
                         const Adapter* adapter,
                         const at::Tensor& ids,
                         const std::vector<at::Tensor>& past,
                         ChunkKeeps keeps) {
  const at::NoGradGuard no_grad;
  const int64_t tokens = ids.size(0);
  const int64_t begin = TokensOf(past);
  const PassInput input = {ids,
                           at::arange(begin, begin + tokens, ids.options())};
  if (!Supports(Executor::kLayerPass, weights.config)) {
    return ForwardByReference(weights, adapter, input, past, keeps);
  }
  return ForwardPass(
      {weights, adapter}, {{.tokens = tokens, .past = past}}, input, keeps);
}

std::vector<ChunkStates> ForwardChunks(const ModelWeights& weights,
                                       const Adapter* adapter,
                                       std::span<const NextChunk> chunks,
                                       int64_t rows,
                                       ChunkKeeps keeps) {
  if (!Supports(Executor::kLayerPass, weights.config)) {
    return ForwardEachByReference(weights, adapter, chunks, keeps);
  }
  return ForwardTogether({weights, adapter}, chunks, rows, keeps);
}

std::vector<ChunkStates> ForwardChunks(const ModelWeights& weights,
                                       const PackedWeights& packed,
                                       bool with_adapter,
                                       std::span<const NextChunk> chunks,
                                       int64_t rows) {
  const PassRows pass =
      RowsOfPass(packed.layers()[0], with_adapter, TokensOf(chunks), rows);
  return ForwardTogether(
      {.weights = weights,
       .packed = &packed,
       .packed_pass = {.whole = pass.whole, .with_adapter = with_adapter}},
      chunks,
      pass.rows,
      ChunkKeeps::kHidden);
}

int64_t ChunkTokensFor(int64_t configured, at::Device device) {
  constexpr int64_t kOnCpu = 128;
  constexpr int64_t kOnGpu = 1024;
  if (configured > 0) return configured;
  return device.is_cuda() ? kOnGpu : kOnCpu;
}

int64_t ChunkBytes(const ModelWeights& weights,
                   int64_t tokens,
                   ChunkKeeps keeps) {
  const ModelConfig& config = weights.config;
  int64_t numbers =
      2 * config.num_layers * config.num_kv_heads * config.head_dim +
      config.hidden_size;
  if (keeps == ChunkKeeps::kLayerInputs) {
    numbers += (config.num_layers + 1) * config.hidden_size;
  }
  return tokens * numbers *
         static_cast<int64_t>(at::elementSize(weights.dtype()));
}

}  // namespace dapd
