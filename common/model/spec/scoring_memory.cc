#include "common/model/spec/scoring_memory.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "common/config/preset_terms.h"
#include "common/model/spec/number_bytes.h"
#include "common/model/spec/pass_memory.h"
#include "common/model/spec/scoring_shape.h"
#include "common/model/spec/step_cost.h"

namespace dapd {
namespace {

// Returns the tokens of a request whose views are as long as they may be, under
// the set of weights that reads the most.
double LongestRequest(const Config& config) {
  const SampleLengths lengths = LongestSamples(config);
  std::map<WeightSet, std::set<ViewName>> views;
  for (const TeacherPass& pass : TeacherPasses(ExpandTerms(config.objective))) {
    // A snapshot is the base until its first refresh.
    const bool may_be_base = pass.weights == WeightSet::kSnapshot;
    views[may_be_base ? WeightSet::kBase : pass.weights].insert(pass.view);
  }
  double longest = 0;
  for (const auto& [set, names] : views) {
    double tokens = 0;
    for (const ViewName name : names) {
      tokens += lengths.at(ViewNameString(name)).tokens;
    }
    longest = std::max(longest, tokens);
  }
  return longest;
}

// Returns the bytes that are kept of a token under way: its keys and values in
// all layers, and its last hidden state.
double TokenBytes(const Config& config, const ModelConfig& model) {
  return static_cast<double>(KvTokenBytes(config, model) +
                             NumberBytes(config) * model.hidden_size);
}

// Returns the bytes sent for a request: the scores of three views of an answer,
// and of a reference.
double RequestScores(const Config& config, const ModelConfig& model) {
  const double tokens =
      3 * static_cast<double>(config.rollout.max_new_tokens +
                              config.objective.max_reference_tokens);
  return static_cast<double>(ScoreBytes(config, model)) * tokens;
}

// Lists the memory of one pass while its chunks get copies of their own: keys,
// values and last hidden states. Logits count for the payloads that are
// computed from them; for top_k the results of the temperature and the softmax
// count, too.
std::vector<MemoryItem> PassItems(const Config& config,
                                  const ModelConfig& model,
                                  int64_t rows,
                                  int64_t head_rows) {
  std::vector<MemoryItem> items = {
      {"keys and values of a pass",
       static_cast<double>(std::max(rows, config.teacher.chunk_tokens)) *
           TokenBytes(config, model)}};
  const Payload payload = config.teacher.payload;
  if (payload != Payload::kHiddenStates) {
    const double copies = payload == Payload::kTopK ? 3 : 1;
    items.push_back({"logits",
                     copies * static_cast<double>(sizeof(float) * head_rows) *
                         static_cast<double>(model.vocab_size)});
  }
  return items;
}

// Lists the memory of scoring on a GPU. Requests that are scored together keep
// the results of their views' chunks until all are scored; if memory is short,
// the teacher scores the requests one by one.
std::vector<MemoryItem> ScoringOnGpu(const Config& config,
                                     const ModelConfig& model,
                                     double prefix_caches) {
  constexpr auto kRequests = static_cast<double>(kGpuScoringRequests);
  constexpr auto kRows = static_cast<double>(kGpuScoringRows);
  const double tokens = LongestRequest(config);
  const double views = tokens * TokenBytes(config, model);
  const double layer = LayerWorkspace(config, model, kRows);
  // The keys and values of one layer that a pass gathers: at most every view's
  // whole past, if the ends of all views share the pass
  // (common/model/fast/chunk_attention.h).
  const double attended = tokens *
                          static_cast<double>(KvTokenBytes(config, model)) /
                          static_cast<double>(model.num_layers);
  const double scores = RequestScores(config, model);
  std::vector<MemoryItem> items =
      PassItems(config, model, kGpuScoringRows, kGpuScoringHeadRows);
  items.insert(items.end(),
               {{"views under way, beside the prefixes",
                 std::max(0.0, kRequests * views - prefix_caches),
                 std::max(0.0, views - prefix_caches)},
                {"a layer", layer + kRequests * attended, layer + attended},
                {"scores", kRequests * scores, scores}});
  return items;
}

// Lists the memory of scoring on a CPU, one request at a time.
std::vector<MemoryItem> ScoringOnCpu(const Config& config,
                                     const ModelConfig& model,
                                     double prefix_caches) {
  const auto longest_view =
      static_cast<double>(kPromptTokens + config.rollout.max_new_tokens +
                          config.objective.max_reference_tokens);
  const double views = LongestRequest(config) * TokenBytes(config, model);
  std::vector<MemoryItem> items =
      PassItems(config, model, kCpuScoringRows, kCpuScoringHeadRows);
  items.insert(items.end(),
               {{"views under way, beside the prefixes",
                 std::max(0.0, views - prefix_caches)},
                {"a layer", LayerWorkspace(config, model, longest_view)},
                {"scores", RequestScores(config, model)}});
  return items;
}

}  // namespace

std::vector<MemoryItem> ScoringItems(const Config& config,
                                     const ModelConfig& model,
                                     double prefix_caches) {
  return PlansForGpu(config) ? ScoringOnGpu(config, model, prefix_caches)
                             : ScoringOnCpu(config, model, prefix_caches);
}

}  // namespace dapd
