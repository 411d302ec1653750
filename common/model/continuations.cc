#include "common/model/continuations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "common/model/fast/chunk_forward.h"
#include "common/model/reference/decoder.h"
#include "common/model/score_rows.h"
#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

using Node = ContinuationTree::Node;

// Returns whether a sequence begins the sequence behind it. If any sequence
// begins another one, it begins its neighbour in sorted order.
bool BeginsNext(const std::vector<int32_t>& sequence,
                const std::vector<int32_t>& next) {
  return std::ranges::mismatch(sequence, next).in1 == sequence.end();
}

at::Tensor Indices(const std::vector<int64_t>& values, at::Device device) {
  return ToDevice(at::tensor(values, at::kLong), device);
}

// The sequence before the places.
struct Before {
  std::vector<at::Tensor> keys_values;  // chunk by chunk
  at::Tensor hidden;                    // [places, hidden]: the last token's
};

Before RunSequence(const ModelWeights& weights,
                   const Adapter* adapter,
                   std::span<const int32_t> ids,
                   std::span<const ContinuationPlace> places) {
  const int64_t tokens =
      std::ranges::max(places, {}, &ContinuationPlace::tokens).tokens;
  std::vector<int64_t> last;
  for (const ContinuationPlace& place : places) {
    TORCH_CHECK(
        place.tokens >= 1 && place.tokens <= static_cast<int64_t>(ids.size()),
        "[continuations] a place behind ",
        place.tokens,
        " tokens of a sequence of ",
        ids.size());
    last.push_back(place.tokens - 1);
  }
  const at::Tensor all =
      PackTokens({{ids.begin(), ids.begin() + tokens}}, weights.device()).ids;
  const int64_t chunk = ChunkTokensFor(/*configured=*/0, weights.device());
  Before before;
  std::vector<at::Tensor> hidden;
  for (int64_t begin = 0; begin < tokens; begin += chunk) {
    const ChunkStates states =
        ForwardChunk(weights,
                     adapter,
                     all.narrow(0, begin, std::min(chunk, tokens - begin)),
                     before.keys_values);
    before.keys_values.push_back(states.keys_values);
    hidden.push_back(states.hidden);
  }
  before.hidden =
      at::cat(hidden).index_select(0, Indices(last, weights.device()));
  return before;
}

// Returns the keys and values of the first `tokens` tokens.
std::vector<at::Tensor> FirstOf(const std::vector<at::Tensor>& keys_values,
                                int64_t tokens) {
  constexpr int64_t kTokens = 3;  // the dimension
  std::vector<at::Tensor> first;
  for (const at::Tensor& chunk : keys_values) {
    if (tokens <= 0) break;
    first.push_back(
        chunk.narrow(kTokens, 0, std::min(tokens, chunk.size(kTokens))));
    tokens -= chunk.size(kTokens);
  }
  return first;
}

// A text at a place.
struct Wanted {
  size_t place = 0;
  size_t leaf = 0;  // the node with which it ends
};

// The chunks of one pass with the rows that predict their tokens.
class TreePass {
 public:
  TreePass(const Before& before, std::span<const ContinuationPlace> places)
      : before_(before), places_(places) {}

  // Adds the nodes of a text that are not yet in the pass.
  void Add(const Wanted& wanted) { AddNode(wanted.place, wanted.leaf); }

  // Returns the log-probability of each node's tokens together, in the order in
  // which the nodes were added.
  std::vector<double> Run(const ModelWeights& weights, const Adapter* adapter) {
    std::vector<at::Tensor> hidden = {before_.hidden};
    for (const ChunkStates& states :
         ForwardChunks(weights, adapter, chunks_, tokens_)) {
      hidden.push_back(states.hidden);
    }
    const at::Device device = weights.device();
    const at::Tensor rows =
        at::cat(hidden).index_select(0, Indices(rows_, device));
    const RowScores scores =
        ScoreRows(rows, Indices(ids_, device), [&](const at::Tensor& part) {
          return ApplyHead(weights, part);
        });
    const at::Tensor logprobs = ToHost({scores.logprobs}).front();
    const float* next = logprobs.const_data_ptr<float>();
    std::vector<double> sums;
    for (const NextChunk& chunk : chunks_) {
      double& sum = sums.emplace_back(0.0);
      for (size_t i = 0; i < chunk.ids.size(); ++i) sum += *next++;
    }
    return sums;
  }

  // Returns the place of a node of a text in Run's result.
  size_t IndexOf(size_t place, size_t node) const {
    return index_.at({place, node});
  }

 private:
  size_t AddNode(size_t place, size_t index) {
    if (const auto found = index_.find({place, index}); found != index_.end()) {
      return found->second;
    }
    const Node& node = places_[place].tree->nodes()[index];
    NextChunk chunk{.ids = node.ids,
                    .begin = places_[place].tokens + node.begin};
    auto row = static_cast<int64_t>(place);  // before the node's first token
    if (node.parent < 0) {
      chunk.past = FirstOf(before_.keys_values, places_[place].tokens);
    } else {
      const size_t parent = AddNode(place, static_cast<size_t>(node.parent));
      chunk.parent = static_cast<int64_t>(parent);
      row = first_row_[parent] +
            static_cast<int64_t>(chunks_[parent].ids.size()) - 1;
    }
    const int64_t own = before_.hidden.size(0) + tokens_;
    for (size_t i = 0; i < node.ids.size(); ++i) {
      rows_.push_back(i == 0 ? row : own + static_cast<int64_t>(i) - 1);
      ids_.push_back(node.ids[i]);
    }
    first_row_.push_back(own);
    tokens_ += static_cast<int64_t>(node.ids.size());
    chunks_.push_back(std::move(chunk));
    index_[{place, index}] = chunks_.size() - 1;
    return chunks_.size() - 1;
  }

  const Before& before_;
  const std::span<const ContinuationPlace> places_;
  std::vector<NextChunk> chunks_;
  std::map<std::pair<size_t, size_t>, size_t> index_;  // by place and node
  int64_t tokens_ = 0;                                 // of all chunks
  std::vector<int64_t> first_row_;  // of each chunk, behind those of `before_`
  std::vector<int64_t> rows_;       // that predict ids_
  std::vector<int64_t> ids_;
};

}  // namespace

absl::StatusOr<ContinuationTree> ContinuationTree::Make(
    std::vector<std::vector<int32_t>> sequences) {
  std::ranges::sort(sequences);
  if (sequences.empty() || sequences.front().empty()) {
    return absl::InvalidArgumentError(
        "a text that may follow has no token, or there is none");
  }
  if (std::ranges::adjacent_find(sequences, BeginsNext) != sequences.end()) {
    return absl::InvalidArgumentError(
        "a text that may follow begins another one, so that both would count");
  }
  ContinuationTree tree;
  tree.AddBranch(sequences, /*depth=*/0, /*parent=*/-1);
  return tree;
}

void ContinuationTree::AddBranch(Sequences sequences,
                                 size_t depth,
                                 int64_t parent) {
  // The first and the last of sorted sequences agree in what all agree in.
  const std::vector<int32_t>& first = sequences.front();
  const auto end = std::ranges::mismatch(first, sequences.back()).in1;
  const auto begin = first.begin() + static_cast<std::ptrdiff_t>(depth);
  if (end != begin) {
    nodes_.push_back({.parent = parent,
                      .begin = static_cast<int64_t>(depth),
                      .ids = {begin, end}});
    parent = static_cast<int64_t>(nodes_.size()) - 1;
    depth = static_cast<size_t>(end - first.begin());
  }
  if (sequences.size() == 1) {
    leaves_.push_back(static_cast<size_t>(parent));
    return;
  }
  while (!sequences.empty()) {
    const int32_t next = sequences.front()[depth];
    const auto same = std::ranges::find_if(
        sequences, [&](const auto& each) { return each[depth] != next; });
    const auto count = static_cast<size_t>(same - sequences.begin());
    AddBranch(sequences.first(count), depth, parent);
    sequences = sequences.subspan(count);
  }
}

int64_t ContinuationTree::longest() const {
  int64_t longest = 0;
  for (const Node& node : nodes_) longest = std::max(longest, node.end());
  return longest;
}

std::vector<double> ContinuationProbabilities(
    const ModelWeights& weights,
    const Adapter* adapter,
    std::span<const int32_t> ids,
    std::span<const ContinuationPlace> places,
    int64_t max_keys) {
  if (places.empty()) return {};
  const at::NoGradGuard no_grad;
  const Before before = RunSequence(weights, adapter, ids, places);
  std::vector<Wanted> all;
  for (size_t place = 0; place < places.size(); ++place) {
    for (const size_t leaf : places[place].tree->leaves()) {
      all.push_back({place, leaf});
    }
  }
  std::vector<double> probabilities(places.size());
  for (std::span<const Wanted> rest = all; !rest.empty();) {
    TreePass pass(before, places);
    int64_t keys = 0;
    size_t count = 0;
    for (; count < rest.size(); ++count) {
      const ContinuationPlace& place = places[rest[count].place];
      keys += place.tokens + place.tree->nodes()[rest[count].leaf].end();
      if (count > 0 && keys > max_keys) break;
      pass.Add(rest[count]);
    }
    const std::vector<double> logprobs = pass.Run(weights, adapter);
    for (const Wanted& wanted : rest.first(count)) {
      const std::vector<Node>& nodes = places[wanted.place].tree->nodes();
      double sum = 0.0;
      for (auto at = static_cast<int64_t>(wanted.leaf); at >= 0;
           at = nodes[static_cast<size_t>(at)].parent) {
        sum += logprobs[pass.IndexOf(wanted.place, static_cast<size_t>(at))];
      }
      probabilities[wanted.place] += std::exp(sum);
    }
    rest = rest.subspan(count);
  }
  return probabilities;
}

}  // namespace dapd
