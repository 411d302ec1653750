#include "common/model/fast/chunk_attention.h"

#include <algorithm>
#include <utility>

namespace dapd {
namespace {

std::vector<int64_t> OffsetsOf(const std::vector<AttendedChunk>& chunks) {
  std::vector<int64_t> offsets = {0};
  for (const AttendedChunk& chunk : chunks) {
    offsets.push_back(offsets.back() + chunk.tokens);
  }
  return offsets;
}

// Returns the offsets of the chunks' queries and, as one more sequence, of the
// rows left over.
std::vector<int64_t> WithUnused(std::vector<int64_t> offsets, int64_t rows) {
  TORCH_CHECK(offsets.back() <= rows,
              "[chunk_attention] chunks of ",
              offsets.back(),
              " tokens in a pass of ",
              rows);
  offsets.push_back(rows);
  return offsets;
}

}  // namespace

// Goes from the last chunk to the first, so that a chunk that others continue
// lies in their keys.
ChunkAttention::Layout ChunkAttention::LayOut(
    const std::vector<AttendedChunk>& chunks) {
  const std::vector<int64_t> offsets = OffsetsOf(chunks);
  std::vector<int64_t> chain_of(chunks.size(), -1);
  std::vector<std::vector<size_t>> chains;  // each from its first chunk on
  for (size_t i = chunks.size(); i-- > 0;) {
    if (chain_of[i] >= 0) continue;
    std::vector<size_t>& chain = chains.emplace_back();
    for (auto at = static_cast<int64_t>(i); at >= 0;) {
      const auto index = static_cast<size_t>(at);
      TORCH_CHECK(chunks[index].parent < at,
                  "[chunk_attention] a chunk comes before its parent");
      chain.push_back(index);
      chain_of[index] = static_cast<int64_t>(chains.size()) - 1;
      at = chunks[index].parent;
    }
    std::ranges::reverse(chain);
  }
  // The order is the order of the rows, so that without a past the keys are the
  // rows themselves.
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
      // A chunk that several chains share has all of its keys in each of them.
      layout.keys[index] = {begin, end - begin};
    }
  }
  layout.keys.push_back({0, 1});
  return layout;
}

ChunkAttention::ChunkAttention(const std::vector<AttendedChunk>& chunks,
                               int64_t rows,
                               at::Device device)
    : ChunkAttention(chunks, rows, LayOut(chunks), device) {}

ChunkAttention::ChunkAttention(const std::vector<AttendedChunk>& chunks,
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

at::Tensor ChunkAttention::Gather(int64_t layer,
                                  int64_t part,
                                  const at::Tensor& own) const {
  if (is_own_) return own.transpose(0, 1);
  // The order is the order of the device's keys_values in memory, so that every
  // piece is copied in long runs.
  const bool is_by_token = own.is_cuda();
  std::vector<at::Tensor> all;
  all.reserve(pieces_.size());
  for (const Piece& piece : pieces_) {
    const at::Tensor heads =
        piece.past.defined()
            ? piece.past[layer][part]
            : own.narrow(1, piece.rows.begin, piece.rows.tokens);
    all.push_back(is_by_token ? heads.transpose(0, 1) : heads);
  }
  return is_by_token ? at::cat(all) : at::cat(all, 1).transpose(0, 1);
}

at::Tensor ChunkAttention::Attend(int64_t layer,
                                  const at::Tensor& q,
                                  const at::Tensor& keys,
                                  const at::Tensor& values) const {
  return attention_.Forward(
      q, Gather(layer, 0, keys), Gather(layer, 1, values), nullptr);
}

}  // namespace dapd
