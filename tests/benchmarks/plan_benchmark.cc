// Prints what the planners make of a batch, for row C4: tokens through the
// trunk and rows through the head.
//
//   plan_benchmark VIEWS.jsonl CHUNK_TOKENS
//
// VIEWS.jsonl is the output of `dapd views`. The objective is the preset's
// objective. The trainer plans with PlanPass; a teacher shares whole chunks of
// CHUNK_TOKENS tokens between views that begin alike (teacher.chunk_tokens).

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/config/preset_terms.h"
#include "common/objective/view_pass.h"
#include "common/terms/term.h"
#include "tests/benchmarks/contender.h"

namespace dapd {
namespace {

Views ParseViews(const nlohmann::json& json) {
  Views views;
  for (size_t i = 0; i < views.size(); ++i) {
    // The file has the views of its configuration's objective only.
    const auto found = json.find(ViewNameString(static_cast<ViewName>(i)));
    if (found == json.end()) continue;
    const nlohmann::json& view = *found;
    views[i] = {.input_ids = view.at("input_ids"),
                .scored_from = view.at("scored_from"),
                .scored_count = view.at("scored_count")};
  }
  return views;
}

int64_t LiveTokens(const Views& views, const std::vector<ViewName>& students) {
  std::vector<const View*> live;
  for (const ViewName name : students) {
    live.push_back(&views[static_cast<size_t>(name)]);
  }
  return PlanPass(live).num_tokens;
}

// Returns the tokens that a teacher with an empty cache computes for `names` of
// one sample with one set of weights.
int64_t TeacherTokens(const Views& views,
                      const std::set<ViewName>& names,
                      int64_t chunk) {
  std::set<std::vector<int32_t>> kept;  // prefixes that end with a chunk
  int64_t computed = 0;
  for (const ViewName name : names) {
    const View& view = views[static_cast<size_t>(name)];
    const int64_t needed = view.scored_from + view.scored_count - 1;
    for (int64_t begin = 0; begin < needed; begin += chunk) {
      const int64_t end = std::min(begin + chunk, needed);
      const std::vector<int32_t> prefix(view.input_ids.begin(),
                                        view.input_ids.begin() + end);
      const bool whole = end - begin == chunk;
      if (!whole || kept.insert(prefix).second) computed += end - begin;
    }
  }
  return computed;
}

nlohmann::json Plan(const std::string& path, int64_t chunk) {
  const std::vector<Term> terms = ExpandTerms(ObjectiveSection{});
  const std::vector<ViewName> students = StudentViews(terms);
  int64_t live = 0;
  // The index says whether the snapshot is still the base.
  std::array<int64_t, 2> teacher = {};
  std::array<int64_t, 2> head = {};
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Views views = ParseViews(nlohmann::json::parse(line).at("views"));
    live += LiveTokens(views, students);
    for (const size_t snapshot_is_base : {0, 1}) {
      std::map<WeightSet, std::set<ViewName>> names;
      for (const TeacherPass& pass : TeacherPasses(terms)) {
        const bool is_base =
            snapshot_is_base == 1 && pass.weights == WeightSet::kSnapshot;
        names[is_base ? WeightSet::kBase : pass.weights].insert(pass.view);
      }
      const auto add_rows = [&](ViewName name) {
        head[snapshot_is_base] += views[static_cast<size_t>(name)].scored_count;
      };
      for (const ViewName name : students) add_rows(name);
      for (const auto& [weights, passes] : names) {
        teacher[snapshot_is_base] += TeacherTokens(views, passes, chunk);
        for (const ViewName name : passes) add_rows(name);
      }
    }
  }
  return {{"live_tokens", live},
          {"teacher_tokens", teacher[0]},
          {"teacher_tokens_at_first", teacher[1]},
          {"head_rows", head[0]},
          {"head_rows_at_first", head[1]}};
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::cout << dapd::Plan(argv[1], std::stoll(argv[2])).dump() << std::endl;
  return 0;
}
