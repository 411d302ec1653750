// RunEvaluations: the evaluations that a run's figures are made of. Not every
// file in evaluation/ counts: some are of other held-out problems, or asked in
// another way, than the run's settings say by now, and some of policies that an
// attempt led to whose steps are done again. The folder's adapter-best/ is of
// the best one that counts, whose figures are in its evaluation.json.
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

  // What the folder has of a run that goes on behind `start_step`, for Add:
  // those of earlier steps ("before" is one of step 0), in their order. The
  // rest count once Find has them, or never: of those that measured something
  // else there is a warning. With evaluation.interval the end of a run that
  // goes on to more steps becomes one within it, also in the folder. An
  // adapter-best/ of a step that is done again is removed, with a warning: the
  // next evaluation begins it anew.
  absl::StatusOr<std::vector<NamedEvaluation>> Recall(const Config& config,
                                                      int64_t start_step);
  // One in the folder of this very adapter, for Add; nothing if there is none
  // that counts, or it is damaged.
  absl::StatusOr<std::optional<EvaluationReport>> Find(
      const std::string& when, const std::string& adapter_digest) const;

  // From here on it counts. Its answers are not kept: a long run has thousands.
  void Add(const std::string& when, EvaluationReport report);
  // evaluation/<when>.json.
  absl::Status Write(const std::string& when,
                     const EvaluationReport& report) const;
  // The folder's adapter-best/.
  std::string BestFolder() const;
  // Says in adapter-best/ that it is of the evaluation `when`, which was added.
  // Before its adapter is written: a kill in between then leaves nothing that
  // is taken for the adapter of another.
  absl::Status WriteBest(const std::string& when) const;

  // Those that were added, by their names.
  const std::map<std::string, EvaluationReport>& all() const { return all_; }
  // That of the highest accuracy, the earliest of several, among all but
  // "before" and those whose adapters have been replaced in adapter-best/;
  // empty if none has an accuracy.
  std::string Best() const;

 private:
  std::string PathOf(const std::string& when) const;
  std::string BestReport() const;
  bool Counts(const EvaluationReport& report) const;
  // Of all `found` in the folder: what Recall says of adapter-best/.
  absl::Status RecallBest(const std::vector<NamedEvaluation>& found,
                          int64_t start_step);

  std::string run_folder_;
  std::string held_out_digest_;
  std::map<std::string, EvaluationReport> all_;
  int64_t first_rival_ = 0;  // the best is none of an earlier step
};

}  // namespace dapd
