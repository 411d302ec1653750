// ClipWatch notices when the component clip hides that a term gets worse: over
// a window of steps the clipped value of a term, which training minimises,
// falls while its true divergence rises. Entries of the vocabulary above the
// clip pass no gradient, and entries with p > q go on rewarding
// (docs/experiments.md, "What the component clip does"). At high learning rates
// accuracy collapses in this way while the loss looks fine.
//
// The rule holds for each clipped term and each window of kWindows steps: both
// least-squares slopes differ from 0 by more than kMinErrors standard errors,
// the slope of the value downwards and the slope of the divergence upwards, and
// the divergence rises by at least kMinRise of its mean. Batches alone move
// value and divergence apart, since a harder batch has more entries above the
// clip, and so a higher divergence and a lower value; therefore kMinErrors is
// large. Neighbouring steps may resemble each other, so the standard error of
// independent steps is multiplied by sqrt((1 + r) / (1 - r)), where r is the
// residuals' correlation from step to step.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/terms/term.h"
#include "common/training/step_report.h"

namespace dapd {

// States that a term's value fell while its true divergence rose.
struct ClipFinding {
  std::string term;
  double clip = 0.0;   // clip of the term
  int64_t step = 0;    // last step of the window
  int64_t window = 0;  // steps
  // Values of the fitted lines at the first and the last step.
  double value_before = 0.0;
  double value_after = 0.0;
  double unclipped_before = 0.0;
  double unclipped_after = 0.0;
};

// Returns one line for people: the term, both changes, the clip and the remedy.
std::string Describe(const ClipFinding& finding);

// Not thread-safe.
class ClipWatch {
 public:
  static constexpr std::array<size_t, 3> kWindows = {20, 40, 80};
  static constexpr double kMinErrors = 6.0;
  static constexpr double kMinRise = 0.05;

  // Watches the terms that have a clip and a weight: a term without a clip has
  // only one value, and a term without weight is not minimised.
  explicit ClipWatch(const std::vector<Term>& terms);

  // Takes in a step, later than the steps before it, and sets clip_hides of the
  // watched terms. Returns the findings to report. A term is not reported again
  // within the window of its last reported finding.
  //
  // A term that scored nothing, or whose numbers are not finite, keeps its
  // window as it was. A refreshed snapshot is another target, so the windows of
  // the terms that it teaches begin anew.
  std::vector<ClipFinding> Add(StepReport* report);

  // Takes in a step of an earlier attempt from its line in metrics.jsonl, so
  // that a resumed run warns as if it had never stopped. Terms that the line
  // lacks are skipped. Throws nlohmann's exception for a line that StepLine did
  // not write.
  void Recall(const nlohmann::ordered_json& line);

  // Returns the newest finding of each term that has one, as of its last step.
  std::vector<ClipFinding> Findings() const;

 private:
  struct Point {
    int64_t step = 0;
    double value = 0.0;
    double unclipped = 0.0;
  };
  struct Watched {
    std::string name;
    double clip = 0.0;
    bool reads_snapshot = false;
    std::deque<Point> points;  // the newest, at most the largest window
    std::optional<ClipFinding> newest;
    int64_t quiet_until = 0;  // the first step that may be told about
    bool is_news = false;     // the last step's finding
  };

  // Returns the watched term `name`, or null.
  Watched* Find(const std::string& name);
  void BeginStep();
  void EndStep(int64_t snapshot_version);
  // Adds `point` to the term. Returns whether its points now show a finding,
  // and sets `newest` and `is_news`.
  static bool Take(Watched& term, int64_t tokens, const Point& point);

  std::vector<Watched> terms_;
  // Versions of the snapshots that taught the last step and teach the next
  // step.
  int64_t taught_ = 0;
  int64_t teaches_ = 0;
};

}  // namespace dapd
