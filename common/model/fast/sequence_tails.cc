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
  const auto options =
      at::TensorOptions(weights.dtype()).device(weights.device());
  const bool is_cuda = weights.device().is_cuda();
  std::vector<PackedChunk> packed;
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
    if (is_cuda) {
      packed.push_back({.tokens = tail.tokens, .past = std::move(past)});
    } else {
      tail.attention.emplace(
          weights.config, std::move(past), tail.tokens, options);
    }
    tails_.push_back(std::move(tail));
    rows.push_back(at::arange(begin, offsets[i + 1], at::kLong));
  }
  rows_ = ToDevice(at::cat(rows), weights.device());
  if (is_cuda) at_once_.emplace(packed, rows_.size(0), weights.device());
}

void SequenceTails::DropKeys() {
  for (Tail& tail : tails_) tail.attention.reset();
  at_once_.reset();
}

at::Tensor SequenceTails::Attend(int64_t layer,
                                 const at::Tensor& q,
                                 const at::Tensor& k,
                                 const at::Tensor& v) const {
  if (at_once_.has_value()) {
    return at_once_->Attend(layer, q, k.transpose(0, 1), v.transpose(0, 1));
  }
  std::vector<at::Tensor> attended;
  int64_t row = 0;
  for (const Tail& tail : tails_) {
    attended.push_back(
        tail.attention->Attend(layer,
                               q.narrow(0, row, tail.tokens),
                               k.narrow(0, row, tail.tokens).transpose(0, 1),
                               v.narrow(0, row, tail.tokens).transpose(0, 1)));
    row += tail.tokens;
  }
  return at::cat(attended);
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
