// Computes the CUDA decode attention (decode_attention_math.h) on the host: the
// same functions in the same order of splits, pages, lanes and groups; also
// computes attention in float64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/kernels/decode_attention_math.h"
#include "tests/fakes/butterfly.h"

namespace dapd {

// Holds one query head with `tokens` keys and values [tokens, head_dim].
struct AttentionInputs {
  int head_dim = 0;
  int tokens = 0;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
};

inline float AttentionScore(const AttentionInputs& in, int token) {
  std::vector<float> lanes(kLanesPerKey, 0.0F);
  for (int lane = 0; lane < kLanesPerKey; ++lane) {
    for (int d = lane * kChunk; d < in.head_dim; d += kLanesPerKey * kChunk) {
      lanes[lane] =
          AddChunkDot(lanes[lane], &in.q[d], &in.k[token * in.head_dim + d]);
    }
  }
  return Butterfly(lanes) * (1.0F / sqrtf(static_cast<float>(in.head_dim)));
}

// Combines a sequence's pages into one dimension of softmax(scores) V:
// `outputs[i * stride]` is page i's sum of exp(score - max) v.
inline float CombinePages(const SoftmaxPart* parts,
                          const float* outputs,
                          int64_t stride,
                          int64_t num_pages) {
  SoftmaxPart total = NoTokens();
  float output = 0.0F;
  for (int64_t begin = 0; begin < num_pages; begin += kSplitPages) {
    SoftmaxPart split = NoTokens();
    float split_output = 0.0F;
    for (int64_t page = begin;
         page < std::min<int64_t>(begin + kSplitPages, num_pages);
         ++page) {
      const FoldFactors factors = FoldPart(parts[page], split);
      split_output = FoldOutput(factors, outputs[page * stride], split_output);
    }
    const FoldFactors factors = FoldPart(split, total);
    output = FoldOutput(factors, split_output, output);
  }
  return output / total.sum;
}

// Computes the attention in the kernel's order of sums.
inline std::vector<float> AttentionTwin(const AttentionInputs& in) {
  const int64_t pages = NumPages(in.tokens);
  std::vector<SoftmaxPart> parts;
  std::vector<float> outputs;  // [pages, head_dim]
  for (int64_t page = 0; page < pages; ++page) {
    const int begin = static_cast<int>(page) * kPageTokens;
    const int tokens = std::min(in.tokens - begin, kPageTokens);
    std::vector<float> scores(kPageTokens, -INFINITY);
    for (int t = 0; t < tokens; ++t) scores[t] = AttentionScore(in, begin + t);
    SoftmaxPart part{*std::max_element(scores.begin(), scores.end()), 0.0F};
    std::vector<float> lanes(32, 0.0F);
    for (int t = 0; t < kPageTokens; ++t) {
      scores[t] = expf(scores[t] - part.max);
      lanes[t % 32] += scores[t];
    }
    part.sum = Butterfly(lanes);
    parts.push_back(part);
    for (int d = 0; d < in.head_dim; ++d) {
      float output = 0.0F;
      for (int group = 0; group < NumValueGroups(in.head_dim); ++group) {
        float sum = 0.0F;
        for (int t = group; t < tokens; t += NumValueGroups(in.head_dim)) {
          sum = fmaf(scores[t], in.v[(begin + t) * in.head_dim + d], sum);
        }
        output += sum;
      }
      outputs.push_back(output);
    }
  }
  std::vector<float> combined;
  for (int d = 0; d < in.head_dim; ++d) {
    combined.push_back(
        CombinePages(parts.data(), &outputs[d], in.head_dim, pages));
  }
  return combined;
}

inline std::vector<double> AttentionInDouble(const AttentionInputs& in) {
  std::vector<double> weights;
  double sum = 0.0;
  for (int t = 0; t < in.tokens; ++t) {
    double score = 0.0;
    for (int d = 0; d < in.head_dim; ++d) {
      score += static_cast<double>(in.q[d]) * in.k[t * in.head_dim + d];
    }
    weights.push_back(std::exp(score / std::sqrt(in.head_dim)));
    sum += weights.back();
  }
  std::vector<double> output(static_cast<size_t>(in.head_dim), 0.0);
  for (int t = 0; t < in.tokens; ++t) {
    for (int d = 0; d < in.head_dim; ++d) {
      output[d] += weights[t] / sum * in.v[t * in.head_dim + d];
    }
  }
  return output;
}

}  // namespace dapd
