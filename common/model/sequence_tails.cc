#include "common/model/sequence_tails.h"

#include <utility>

namespace dapd {

SequenceTails::SequenceTails(const ModelWeights& weights,
                             const std::vector<int64_t>& offsets,
                             std::vector<SequenceBeginning> beginnings) {
  TORCH_CHECK(beginnings.size() + 1 == offsets.size(),
              "[sequence_tails] ",
              beginnings.size(),
              " beginnings of ",
              offsets.size() - 1,
              " sequences");
  const auto options =
      at::TensorOptions(weights.dtype()).device(weights.device());
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < beginnings.size(); ++i) {
    std::vector<at::Tensor> past;
    int64_t begin = offsets[i];
    for (const auto& chunk : beginnings[i]) {
      past.push_back(chunk->keys_values);
      begin += chunk->hidden.size(0);
    }
    TORCH_CHECK(begin < offsets[i + 1],
                "[sequence_tails] the chunks of sequence ",
                i,
                " leave none of its tokens");
    const int64_t tokens = offsets[i + 1] - begin;
    rows.push_back(at::arange(begin, offsets[i + 1], at::kLong));
    tails_.push_back({tokens,
                      std::move(beginnings[i]),
                      ChunkAttention(
                          weights.config, std::move(past), tokens, options)});
  }
  rows_ = at::cat(rows).to(weights.device());
}

at::Tensor SequenceTails::Attend(int64_t layer,
                                 const at::Tensor& q,
                                 const at::Tensor& k,
                                 const at::Tensor& v) const {
  std::vector<at::Tensor> attended;
  int64_t row = 0;
  for (const Tail& tail : tails_) {
    attended.push_back(tail.attention.Attend(
        layer,
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
    for (const auto& chunk : tail.beginning) {
      parts.push_back(chunk->layer_inputs[layer]);
    }
    parts.push_back(tails.narrow(0, row, tail.tokens));
    row += tail.tokens;
  }
  return at::cat(parts);
}

}  // namespace dapd
