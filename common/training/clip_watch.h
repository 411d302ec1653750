// ClipWatch: notices that the component clip hides what gets worse. A term's
// clipped value, which training minimises, then falls over a window of steps
// while its true divergence rises: entries of the vocabulary above the clip
// pass no gradient, those with p > q go on rewarding (docs/experiments.md,
// "What the component clip does"). At high rates accuracy collapses that way
// while the loss looks fine.
//
// The rule, for each clipped term and each window of kWindows steps: both
// least-squares slopes differ from 0 by more than kMinErrors of their standard
// errors, the value's downwards, the divergence's upwards, and the divergence
// rises by at least kMinRise of its mean. Batches pull the two apart by
// themselves, for a harder one has more entries above the clip, and so a higher
// divergence and a lower value; hence so many errors. As neighbouring steps may
// resemble each other, an error is that of independent ones times
// sqrt((1 + r) / (1 - r)) with r the residuals' correlation from step to step.
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

// That a term's value fell while its true divergence rose.
struct ClipFinding {
  std::string term;
  double clip = 0.0;   // the term's
  int64_t step = 0;    // the window's last
  int64_t window = 0;  // steps
  // Where the fitted lines begin and end.
  double value_before = 0.0;
  double value_after = 0.0;
  double unclipped_before = 0.0;
  double unclipped_after = 0.0;
};

// One line for people: the term, both changes, the clip and what to do.
std::string Describe(const ClipFinding& finding);

// Not thread-safe.
class ClipWatch {
 public:
  static constexpr std::array<size_t, 3> kWindows = {20, 40, 80};
  static constexpr double kMinErrors = 6.0;
  static constexpr double kMinRise = 0.05;

  // Terms without a clip have one value, those without weight are not
  // minimised: neither are watched.
  explicit ClipWatch(const std::vector<Term>& terms);

  // Takes in a step, later than those before it, and sets clip_hides of the
  // watched terms. Returns what is to be told: findings, but none of a term of
  // which one was told less than that one's window ago.
  //
  // A term that scored nothing, or whose numbers are not finite, keeps its
  // window as it was. A refreshed snapshot is another target, so the windows of
  // terms that it teaches begin anew.
  std::vector<ClipFinding> Add(StepReport* report);

  // Takes in a step of an earlier attempt from its line in metrics.jsonl, so
  // that a run that goes on warns as if it had never stopped. Terms that the
  // line lacks are left out; nlohmann's exception for a line that StepLine did
  // not write.
  void Recall(const nlohmann::ordered_json& line);

  // The newest finding of each term that has had one, as of its last step.
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

  // The term of that name, if it is watched.
  Watched* Find(const std::string& name);
  void BeginStep();
  void EndStep(int64_t snapshot_version);
  // Whether the term's points, with this one, show it; sets newest and what is
  // to be told.
  static bool Take(Watched& term, int64_t tokens, const Point& point);

  std::vector<Watched> terms_;
  // The snapshots that taught the last step and teach the next one.
  int64_t taught_ = 0;
  int64_t teaches_ = 0;
};

}  // namespace dapd
