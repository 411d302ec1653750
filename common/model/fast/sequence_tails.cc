#include "common/model/fast/sequence_tails.h"

#include <utility>

#include "common/tensor/device_copy.h"

namespace dapd {

SequenceTails::SequenceTails(const ModelWeights& weights,
                             const std::vector<int64_t>& offsets,
                             const std::vector<SequencePrefix>& prefixes) {
  TORCH_CHECK(prefixes.size() + 1 == offsets.size(),
              "[sequence_tails] ",
              prefixes.size(),
              " prefixes of ",
              offsets.size() - 1,
              " sequences");
  std::vector<AttendedChunk> chunks;
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < prefixes.size(); ++i) {
    std::vector<at::Tensor> past;
    Tail tail;
    int64_t begin = offsets[i];
    for (const ChunkStates& chunk : prefixes[i]) {
      past.push_back(chunk.keys_values);
      tail.layer_inputs.push_back(chunk.layer_inputs);
      begin += chunk.hidden.size(0);
    }
    TORCH_CHECK(begin < offsets[i + 1],
                "[sequence_tails] the chunks of sequence ",
                i,
                " leave none of its tokens");
    tail.tokens = offsets[i + 1] - begin;
    chunks.push_back({.tokens = tail.tokens, .past = std::move(past)});
    tails_.push_back(std::move(tail));
    rows.push_back(at::arange(begin, offsets[i + 1], at::kLong));
  }
  rows_ = ToDevice(at::cat(rows), weights.device());
  attention_.emplace(chunks, rows_.size(0), weights.device());
}

void SequenceTails::DropKeys() { attention_.reset(); }

at::Tensor SequenceTails::Attend(int64_t layer,
                                 const at::Tensor& q,
                                 const at::Tensor& k,
                                 const at::Tensor& v) const {
  return attention_->Attend(layer, q, k.transpose(0, 1), v.transpose(0, 1));
}

at::Tensor SequenceTails::Whole(int64_t layer, const at::Tensor& tails) const {
  std::vector<at::Tensor> parts;
  int64_t row = 0;
  for (const Tail& tail : tails_) {
    for (const at::Tensor& chunk : tail.layer_inputs) {
      parts.push_back(chunk[layer]);
    }
    parts.push_back(tails.narrow(0, row, tail.tokens));
    row += tail.tokens;
  }
  return at::cat(parts);
}

}  // namespace dapd
