// RunEvaluations holds the evaluations that count for a run's figures. Some
// files in evaluation/ do not count: evaluations of other held-out problems or
// with other questions than the run's present settings; and evaluations of
// policies of an earlier attempt whose steps are done again. adapter-best/
// holds the adapter of the best evaluation that counts, and its figures in
// evaluation.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "services/trainer/record/evaluation_report.h"

namespace dapd {

// Not thread-safe.
class RunEvaluations {
 public:
  // `held_out_digest`: EvaluationReport's, of the evaluations to come.
  RunEvaluations(std::string run_folder, std::string held_out_digest);

  // Returns the folder's evaluations up to `start_step`, for Add, in their
  // order ("before" belongs to step 0). Later evaluations count once Find
  // returns them, or never; a warning names evaluations with another held-out
  // digest. With evaluation.interval, "after" of a run that goes on to more
  // steps becomes an evaluation within the run, in the folder too. An
  // adapter-best/ of a step that is done again is removed, with a warning; the
  // next evaluation begins it anew.
  absl::StatusOr<std::vector<NamedEvaluation>> Recall(const Config& config,
                                                      int64_t start_step);
  // Returns the folder's evaluation of this very adapter, for Add; nothing if
  // none counts, or if it is damaged.
  absl::StatusOr<std::optional<EvaluationReport>> Find(
      const std::string& when, const std::string& adapter_digest) const;

  // Makes an evaluation count. Its answers are not kept: a long run has
  // thousands.
  void Add(const std::string& when, EvaluationReport report);
  // Writes evaluation/<when>.json.
  absl::Status Write(const std::string& when,
                     const EvaluationReport& report) const;
  // Returns the path of adapter-best/.
  std::string BestFolder() const;
  // Notes in adapter-best/ that it belongs to the evaluation `when`, which was
  // added. Called before its adapter is written, so that a kill in between
  // leaves nothing that is taken for another evaluation's adapter.
  absl::Status WriteBest(const std::string& when) const;

  // Returns the added evaluations by name.
  const std::map<std::string, EvaluationReport>& all() const { return all_; }
  // Returns the name of the evaluation with the highest accuracy, the earliest
  // if several have it; leaves out "before" and evaluations whose adapters were
  // replaced in adapter-best/; empty if no evaluation has an accuracy.
  std::string Best() const;

 private:
  std::string PathOf(const std::string& when) const;
  std::string BestReport() const;
  bool Counts(const EvaluationReport& report) const;
  // Does the part of Recall about adapter-best/; `found`: all evaluations in
  // the folder.
  absl::Status RecallBest(const std::vector<NamedEvaluation>& found,
                          int64_t start_step);

  std::string run_folder_;
  std::string held_out_digest_;
  std::map<std::string, EvaluationReport> all_;
  int64_t first_rival_ = 0;  // steps before it are out of the contest
};

}  // namespace dapd
