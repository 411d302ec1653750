#include "common/model/fast/packed_chunk_attention.h"

#include <algorithm>
#include <utility>

namespace dapd {
namespace {

std::vector<int64_t> OffsetsOf(const std::vector<PackedChunk>& chunks) {
  std::vector<int64_t> offsets = {0};
  for (const PackedChunk& chunk : chunks) {
    offsets.push_back(offsets.back() + chunk.tokens);
  }
  return offsets;
}

// The chunks' queries and, as one more sequence, the unused rows.
std::vector<int64_t> WithUnused(std::vector<int64_t> offsets, int64_t rows) {
  TORCH_CHECK(offsets.back() <= rows,
              "[packed_chunk_attention] chunks of ",
              offsets.back(),
              " tokens in a pass of ",
              rows);
  offsets.push_back(rows);
  return offsets;
}

}  // namespace

// From the last chunk on, so that one that others continue lies in their keys.
PackedChunkAttention::Layout PackedChunkAttention::LayOut(
    const std::vector<PackedChunk>& chunks) {
  const std::vector<int64_t> offsets = OffsetsOf(chunks);
  std::vector<int64_t> chain_of(chunks.size(), -1);
  std::vector<std::vector<size_t>> chains;  // each from its first chunk on
  for (size_t i = chunks.size(); i-- > 0;) {
    if (chain_of[i] >= 0) continue;
    std::vector<size_t>& chain = chains.emplace_back();
    for (auto at = static_cast<int64_t>(i); at >= 0;) {
      const auto index = static_cast<size_t>(at);
      TORCH_CHECK(chunks[index].parent < at,
                  "[packed_chunk_attention] a chunk comes before its parent");
      chain.push_back(index);
      chain_of[index] = static_cast<int64_t>(chains.size()) - 1;
      at = chunks[index].parent;
    }
    std::ranges::reverse(chain);
  }
  // In the order of the rows: without a past the keys are the rows themselves.
  std::ranges::sort(chains);
  Layout layout;
  layout.keys.resize(chunks.size());
  int64_t end = 0;
  for (const std::vector<size_t>& chain : chains) {
    const int64_t begin = end;
    for (const at::Tensor& past : chunks[chain.front()].past) {
      layout.pieces.push_back({.past = past});
      end += past.size(3);
    }
    for (const size_t index : chain) {
      const int64_t tokens = chunks[index].tokens;
      layout.pieces.push_back({.rows = {offsets[index], tokens}});
      end += tokens;
      // Where chains share a chunk, each of them has all of its keys.
      layout.keys[index] = {begin, end - begin};
    }
  }
  layout.keys.push_back({0, 1});
  return layout;
}

PackedChunkAttention::PackedChunkAttention(
    const std::vector<PackedChunk>& chunks, int64_t rows, at::Device device)
    : PackedChunkAttention(chunks, rows, LayOut(chunks), device) {}

PackedChunkAttention::PackedChunkAttention(
    const std::vector<PackedChunk>& chunks,
    int64_t rows,
    Layout layout,
    at::Device device)
    : pieces_(std::move(layout.pieces)),
      attention_(WithUnused(OffsetsOf(chunks), rows), layout.keys, device) {
  int64_t row = 0;
  is_own_ = std::ranges::all_of(pieces_, [&](const Piece& piece) {
    const bool follows = !piece.past.defined() && piece.rows.begin == row;
    row += piece.rows.tokens;
    return follows;
  });
}

at::Tensor PackedChunkAttention::Gather(int64_t layer,
                                        int64_t part,
                                        const at::Tensor& own) const {
  const at::Tensor rows = own.transpose(0, 1);
  if (is_own_) return rows;
  std::vector<at::Tensor> all;
  all.reserve(pieces_.size());
  for (const Piece& piece : pieces_) {
    all.push_back(piece.past.defined()
                      ? piece.past[layer][part].transpose(0, 1)
                      : rows.narrow(0, piece.rows.begin, piece.rows.tokens));
  }
  return at::cat(all);
}

at::Tensor PackedChunkAttention::Attend(int64_t layer,
                                        const at::Tensor& q,
                                        const at::Tensor& keys,
                                        const at::Tensor& values) const {
  return attention_.Forward(
      q, Gather(layer, 0, keys), Gather(layer, 1, values), nullptr);
}

}  // namespace dapd
