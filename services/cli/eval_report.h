// EvalReport: the measures of `dapd eval`. Each problem is one observation,
// however many answers it has.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/data/confidence_interval.h"
#include "services/cli/answer_record.h"

namespace dapd {

struct EvalReport {
  struct OfProblem {
    std::string id;
    int64_t correct = 0;  // of `samples` answers
  };
  int64_t samples = 0;                  // answers per problem, K
  Interval accuracy;                    // Avg@K: mean share of right answers
  std::vector<Interval> pass_at;        // [k - 1]: pass_at_k.h; pass@1 is Avg@K
  Interval format_rate;                 // answers with a box
  std::string marker;                   // --marker; empty: none
  std::optional<Interval> marker_rate;  // answers that contain it
  Interval truncated;                   // answers that hit the length limit
  Interval repeated;                    // answers that ended in a loop
  Interval tokens;                      // mean length
  std::vector<OfProblem> problems;
};

// Summarizes `samples` answers to each problem, in any order: records[i].index
// < ids.size(), and is_marked says whether the text contains `marker`.
// Intervals come from BootstrapInterval, the mean length's from BootstrapMean,
// with `seed`: all intervals of a report draw the same problems.
EvalReport SummarizeAnswers(const std::vector<std::string>& ids,
                            int64_t samples,
                            const std::vector<AnswerRecord>& records,
                            const std::string& marker,
                            uint64_t seed);

// Returns {"problems", "samples", "accuracy", "format_rate", "mean_tokens",
// "tokens", "truncated", "repeated", "pass_at": {"1": ...}, "by_problem":
// [{"id", "correct"}]}, and with a marker "marker", "marker_rate"; each measure
// as {"mean", "low", "high"}.
nlohmann::ordered_json ToJson(const EvalReport& report);

// Returns the report as several lines of text.
std::string ToText(const EvalReport& report);

}  // namespace dapd
