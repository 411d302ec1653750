#include "common/model/spec/decoding_memory.h"

#include <algorithm>
#include <array>
#include <vector>

#include "common/kernels/cuda/launch.h"
#include "common/kernels/cuda/sampling.h"
#include "common/kernels/cuda/skinny_product.h"
#include "common/kernels/decode_attention_math.h"
#include "common/model/spec/decoding_shape.h"
#include "common/model/spec/number_bytes.h"

namespace dapd {
namespace {

constexpr int64_t kFloatBytes = 4;
// The bytes of a graph's node in the driver's memory: an assumption that has
// not been measured.
constexpr int64_t kGraphNodeBytes = 16 << 10;
// The most nodes of a step: kNodesOfLayer for each layer with an adapter in
// columns and two gathers, and kNodesAround for the parts around the layers,
// with a gather of the logits (cuda_decode_step.h).
constexpr int64_t kNodesOfLayer = 15;
constexpr int64_t kNodesAround = 6;
// NCCL adds further nodes, by which it orders its work in graphs and streams:
// an event behind each launch, which a gather is, and a wait at the beginning
// (ncclStrongStreamRelease and ncclStrongStreamAcquire).
constexpr int64_t kGathersOfLayer = 2;

// One of a layer's four products (packed_weights.h): [out, in + lora].
struct Product {
  int64_t in = 0;
  int64_t out = 0;
  int64_t lora = 0;
  bool has_bias = false;

  int64_t width() const { return in + lora; }
};

// The part of the model that one rank decodes with, and its sizes.
struct Share {
  ModelConfig model;   // its heads and columns of the MLP
  int64_t number = 0;  // bytes
  bool merges = false;
  int64_t ranks = 1;
  int64_t slots = 0;
  int64_t max_tokens = 0;  // tokens of the longest sequence
  Product qkv, o, gate_up, down;

  std::array<const Product*, 4> products() const {
    return {&qkv, &o, &gate_up, &down};
  }
};

bool IsTarget(const Config& config, const ProjectionRecipe& projection) {
  return std::ranges::count(config.lora.targets, projection.name) > 0;
}

Product ProductOf(const Config& config,
                  const Share& share,
                  const LayerRecipe& recipe,
                  const std::vector<Projection>& parts) {
  Product product;
  for (const Projection part : parts) {
    const ProjectionRecipe& projection = recipe[part];
    product.in = projection.in;
    product.out += projection.out;
    product.has_bias = projection.has_bias;
    if (IsTarget(config, projection) && !share.merges) {
      product.lora += PaddedRank(config.lora.rank);
    }
  }
  return product;
}

// Fills in the four products, which are the same in every layer that
// CudaDecoder computes.
void SetProducts(const Config& config, Share* share) {
  const LayerRecipe recipe = LayerRecipeOf(share->model, /*layer=*/0);
  const auto groups = recipe.Groups();
  const std::array products = {
      &share->qkv, &share->o, &share->gate_up, &share->down};
  for (size_t i = 0; i < products.size(); ++i) {
    *products[i] = ProductOf(config, *share, recipe, groups.at(i));
  }
}

Share ShareOfRank(const Config& config, const ModelConfig& model) {
  Share share{.model = model};
  share.merges = config.model.precision == Precision::kFloat32;
  share.number = NumberBytes(config);
  share.ranks = config.rollout.tensor_parallel;
  share.model.num_heads /= share.ranks;
  share.model.num_kv_heads /= share.ranks;
  share.model.intermediate_size /= share.ranks;
  share.slots = std::min(config.rollout.slots, kGpuDecodeSlots);
  share.max_tokens = std::min(model.max_positions, kGpuLongestSequence);
  SetProducts(config, &share);
  return share;
}

int64_t PackedBytes(const Share& share) {
  int64_t numbers = 0;
  for (const Product* product : share.products()) {
    numbers += share.merges ? product->in * product->out
                            : product->lora * (product->in + product->out);
    if (product->has_bias) numbers += product->out;
  }
  return share.model.num_layers * numbers * share.number;
}

// Counts the workspace that CudaDecoderMemory divides, without the parts of
// other ranks.
int64_t WorkspaceBytes(const Share& share) {
  constexpr int64_t kAlignment = 256;
  int64_t bytes = 0;
  const auto take = [&bytes](int64_t size) {
    bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
  };
  const ModelConfig& model = share.model;
  const int64_t rows = GpuDecodeRows(share.slots);
  const auto take_rows = [&](int64_t width) {
    take(rows * width * share.number);
  };
  take_rows(model.hidden_size);
  for (const Product* product : share.products()) take_rows(product->width());
  take_rows(share.qkv.out);
  if (share.ranks == 1) take_rows(model.hidden_size);
  take_rows(share.gate_up.out);
  take_rows(model.hidden_size);
  take(rows * model.vocab_size * kFloatBytes);
  take(DecodeAttentionScratch(
           rows, model.num_heads, model.head_dim, share.max_tokens) *
       kFloatBytes);
  take(rows * model.num_kv_heads * static_cast<int64_t>(sizeof(uint32_t)));
  take(SampleScratch(rows, model.vocab_size));
  take(kCudaProductWorkspace);
  const int64_t slots = share.slots + 1;  // one slot scores
  take(slots * static_cast<int64_t>(sizeof(int32_t)));
  take(slots * static_cast<int64_t>(sizeof(int32_t)));
  take(slots * NumPages(share.max_tokens) *
       static_cast<int64_t>(sizeof(void*)));
  take(rows * static_cast<int64_t>(sizeof(int32_t)));
  take(slots * static_cast<int64_t>(sizeof(CudaSequence)));
  take(slots * kSampledRing * static_cast<int64_t>(sizeof(CudaSampled)));
  return bytes;
}

int64_t Doublings(int64_t least, int64_t most) {
  int64_t count = 1;
  for (int64_t size = least; size < most; size *= 2) ++count;
  return count;
}

// Returns how many different numbers of rows steps have (CudaDecoder).
int64_t NumbersOfRows(const Share& share) {
  const int64_t rows = GpuDecodeRows(share.slots);
  const auto number =
      share.merges ? CudaNumber::kFloat32 : CudaNumber::kBFloat16;
  return Doublings(LeastStableRows(number, rows), rows);
}

// Returns the bytes outside the decoder, with graphs for `numbers_of_rows`
// numbers of rows.
int64_t OutsideBytes(const Share& share, int64_t numbers_of_rows) {
  const int64_t graphs =
      Doublings(kGpuShortestContext, share.max_tokens) * numbers_of_rows;
  const int64_t nodes = NodesOfStep(share.model.num_layers, share.ranks);
  return kCudaProductWorkspace + graphs * nodes * kGraphNodeBytes;
}

// Returns the bytes that MakeRotaryAngles takes for `positions` positions, its
// float32 intermediates and its result included.
int64_t AngleBytes(const Share& share, int64_t positions) {
  return 2 * positions * share.model.head_dim * share.number;
}
int64_t AngleMakingBytes(const Share& share, int64_t positions) {
  constexpr int64_t kPositionBytes = 8 + kFloatBytes;
  // Half of the angles, all of them, cosines and sines.
  const int64_t floats = positions * share.model.head_dim * 7 / 2;
  return positions * kPositionBytes + floats * kFloatBytes +
         (share.number == kFloatBytes ? 0 : AngleBytes(share, positions));
}

// Returns the bytes of a token's keys and values in this rank's layers.
int64_t KvBytes(const Share& share) {
  return 2 * share.model.num_layers * share.model.num_kv_heads *
         share.model.head_dim * share.number;
}

// Returns the most bytes that a layer (fast/layer_pass.cc over packed
// projections) has in use for a row, beside the residual stream, keys and
// values.
int64_t LayerRowBytes(const Share& share) {
  const ModelConfig& model = share.model;
  const int64_t hidden = model.hidden_size;
  const int64_t heads = model.num_heads * model.head_dim;
  const int64_t kv_heads = model.num_kv_heads * model.head_dim;
  // The normed stream, with room for x A^T, and at the same time the sum it is
  // made of or the factor it is multiplied with.
  const auto normed = [&](const Product& product) {
    return product.width() + std::max(hidden, product.out);
  };
  // In float32, keys and values are meanwhile repeated for each head.
  const int64_t attention = share.qkv.out + heads + kv_heads + heads +
                            (share.number == kFloatBytes ? 2 * heads : 0);
  // The copy of attention's result in which x A^T has room behind it.
  const int64_t behind_attention =
      heads + (share.o.lora > 0 ? share.o.width() : 0) + hidden;
  const int64_t gated =
      std::max(share.gate_up.out, hidden) + share.down.width();
  const int64_t numbers = std::max({normed(share.qkv),
                                    attention,
                                    behind_attention,
                                    normed(share.gate_up),
                                    gated});
  // The log-sum-exp of attention is float32.
  return numbers * share.number + model.num_heads * kFloatBytes;
}

int64_t PrefillBytes(const Share& share, int64_t rows) {
  // Ids, positions and last rows; the begins of sequences and attention's
  // random state are small.
  constexpr int64_t kSmallBytes = 512;
  const int64_t ids = (2 * rows + kPrefillPrompts) * 8 + kSmallBytes;
  const int64_t always =
      AngleBytes(share, rows) +
      rows * (share.model.hidden_size * share.number + KvBytes(share));
  // After the last layer: its output, the last rows of it and of the stream,
  // their norm, and the logits.
  const int64_t hidden = share.model.hidden_size * share.number;
  const int64_t logits =
      rows * hidden +
      kPrefillPrompts * (share.model.vocab_size * kFloatBytes + 2 * hidden);
  return ids + std::max(AngleMakingBytes(share, rows),
                        always + std::max(rows * LayerRowBytes(share), logits));
}

// Counts the memory while a policy is changed, and before the first one.
int64_t ChangeBytes(const Config& config, const Share& whole) {
  int64_t adapter = 0;  // of one layer, in numbers
  int64_t pair = 0;     // the largest one, which is copied on its way
  for (const ProjectionRecipe& projection :
       LayerRecipeOf(whole.model, /*layer=*/0).projections) {
    if (!IsTarget(config, projection)) continue;
    const int64_t numbers = config.lora.rank * (projection.in + projection.out);
    adapter += numbers;
    pair = std::max(pair, numbers);
  }
  const int64_t next = whole.model.num_layers * adapter + pair;
  return next * kFloatBytes + (whole.merges ? kCudaProductWorkspace : 0);
}

// A projection is in memory twice while it is packed, unless all of them stay.
int64_t PackingBytes(const Share& share) {
  int64_t largest = 0;
  for (const Product* product : share.products()) {
    largest = std::max(largest, product->width() * product->out);
  }
  return share.merges ? 0 : largest * share.number;
}

}  // namespace

int64_t NodesOfStep(int64_t num_layers, int64_t ranks) {
  const int64_t gathers = num_layers * kGathersOfLayer + 1;
  return num_layers * kNodesOfLayer + kNodesAround +
         (ranks > 1 ? gathers + 1 : 0);
}

double AdapterColumnBytes(const Config& config, const ModelConfig& model) {
  Share whole{.model = model, .number = NumberBytes(config)};
  SetProducts(config, &whole);
  return static_cast<double>(PackedBytes(whole));
}

int64_t ShortestPrefill(int64_t prompt_tokens) {
  return (prompt_tokens + kPrefillRows - 1) / kPrefillRows * kPrefillRows;
}

int64_t LongestPrefill(const Config& config, int64_t prompt_tokens) {
  const int64_t prompts = std::min(config.rollout.slots, kPrefillPrompts);
  return ShortestPrefill(
      std::min(kPrefillTokens - 1 + prompt_tokens, prompts * prompt_tokens));
}

int64_t TokensOfPages(int64_t tokens) { return NumPages(tokens) * kPageTokens; }

DecodingMemory DecodingMemoryOf(const Config& config,
                                const ModelConfig& model,
                                int64_t prompt_tokens) {
  const Share share = ShareOfRank(config, model);
  Share whole = share;
  whole.model = model;
  const int64_t scored = kPageTokens * KvBytes(share);
  const auto prefill = [&](int64_t rows) {
    return static_cast<double>(PrefillBytes(share, rows) + scored);
  };
  const int64_t change = std::max({ChangeBytes(config, whole),
                                   PackingBytes(share),
                                   AngleMakingBytes(share, share.max_tokens)});
  return {
      .packed = static_cast<double>(PackedBytes(share)),
      .tables = static_cast<double>(AngleBytes(share, share.max_tokens)),
      .workspace = static_cast<double>(WorkspaceBytes(share)),
      .outside = static_cast<double>(OutsideBytes(share, NumbersOfRows(share))),
      .least_outside = static_cast<double>(OutsideBytes(share, 1)),
      .prompts = prefill(LongestPrefill(config, prompt_tokens)),
      .least_prompts = prefill(ShortestPrefill(prompt_tokens)),
      .change = static_cast<double>(change)};
}

}  // namespace dapd
