// Computes how probable it is that one of several texts follows at places of a
// token sequence: at each place the sum, over the texts, of the product of
// their tokens' probabilities at temperature 1 over the whole vocabulary.
//
// The sequence passes once, in chunks, and its keys and values stay. The texts
// form a prefix tree, of which each node is a chunk behind its parent
// (fast/chunk_forward.h). So a place costs the tokens of the tree, each once,
// however long the sequence is; but attention copies the keys and values before
// the place for each text, so a pass takes only so many texts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"

namespace dapd {

// Token sequences of which none begins another one, so that at most one of them
// can follow a text. Immutable.
class ContinuationTree {
 public:
  // Returns INVALID_ARGUMENT if there is no sequence, if one is empty, or if
  // one begins another one or equals it.
  static absl::StatusOr<ContinuationTree> Make(
      std::vector<std::vector<int32_t>> sequences);

  // Tokens that belong together in every sequence that has them.
  struct Node {
    int64_t parent = -1;  // index, lower than the node's own; -1: none
    int64_t begin = 0;    // tokens of a sequence before the node's
    std::vector<int32_t> ids;

    int64_t end() const { return begin + static_cast<int64_t>(ids.size()); }
  };
  const std::vector<Node>& nodes() const { return nodes_; }
  // Returns the indices of the nodes with which the sequences end.
  const std::vector<size_t>& leaves() const { return leaves_; }
  // Returns the number of tokens of the longest sequence.
  int64_t longest() const;

 private:
  using Sequences = std::span<const std::vector<int32_t>>;
  // Adds the nodes of sorted sequences that agree in the first `depth` tokens,
  // which are those up to the end of `parent`.
  void AddBranch(Sequences sequences, size_t depth, int64_t parent);

  std::vector<Node> nodes_;
  std::vector<size_t> leaves_;
};

struct ContinuationPlace {
  int64_t tokens = 0;  // of the sequence before the place; at least 1
  const ContinuationTree* tree = nullptr;  // of the texts that may follow
};

// The keys that attention gathers in a pass. In a model of the size of Qwen3
// 32B they take 512 MiB with their values, for one layer at a time.
inline constexpr int64_t kContinuationKeys = int64_t{1} << 17;

// Returns the probability that a text of its tree follows, by place. `ids`: the
// sequence, up to the last place at least. `adapter` null: the base. The layers
// of `weights` may be spread over ranks (weights/layer_source.h). A pass takes
// as many texts as fit into `max_keys`, at least one. Records no gradient.
// Throws c10::Error for a place outside the sequence and
// c10::OutOfMemoryError.
std::vector<double> ContinuationProbabilities(
    const ModelWeights& weights,
    const Adapter* adapter,
    std::span<const int32_t> ids,
    std::span<const ContinuationPlace> places,
    int64_t max_keys = kContinuationKeys);

}  // namespace dapd
