// Scorer: the interface of the teacher worker to a model. The real scorer
// (model_scorer.h) computes with LibTorch; tests use a fake.
//
// Not thread-safe: the worker's compute thread owns it. Errors of the
// computation itself (out of memory, ...) are Status, not exceptions.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/rpc/transfer/served_policy.h"
#include "common/tensor/host_tensor.h"
#include "common/terms/payload.h"
#include "common/terms/view.h"
#include "common/terms/weight_set.h"

namespace dapd {

struct ScoreInput {
  WeightSet weights = WeightSet::kBase;
  Payload payload = Payload::kHiddenStates;
  int64_t top_k = 0;         // of kTopK
  double temperature = 1.0;  // of kTopK
  NamedViews views;          // scored_from is at least 1 in each
};

// The sets that uploads may become; an upload that names no set becomes the
// first set.
inline constexpr std::array kTeacherSets = {
    WeightSet::kSnapshot, WeightSet::kEma, WeightSet::kLive, WeightSet::kBase};

// The tensors of one view by name, as teacher.proto's Payload lists them.
struct ViewScores {
  ViewName view = ViewName::kNoneRollout;
  std::vector<std::pair<std::string, HostTensor>> tensors;
};
// Takes one view's scores. Returns false if the caller wants no further views.
using ViewSink = std::function<bool(ViewScores scores)>;

// The tokens of a request's views.
struct ScoreWork {
  int64_t computed_tokens = 0;  // for this request
  int64_t reused_tokens = 0;    // computed ahead, or for another view
};

// One of several requests that are scored together.
struct ScoreJob {
  const ScoreInput* input = nullptr;
  ViewSink sink;
};

// A kept prefix of a token sequence, computed ahead.
struct HeldPrefix {
  int64_t tokens = 0;
  std::shared_ptr<const void> hold;  // holds the scorer's chunks
};

// A sequence whose next chunks may be computed ahead.
struct AheadSequence {
  WeightSet weights = WeightSet::kBase;
  const std::vector<int32_t>* ids = nullptr;  // the known tokens
  HeldPrefix* prefix = nullptr;               // the computed tokens
};

class Scorer {
 public:
  virtual ~Scorer() = default;

  // Makes the upload its set of weights, which is not the base, and probes it.
  // On error the set stays as it was.
  virtual absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) = 0;
  // Probes a loaded set, or the base.
  virtual absl::StatusOr<AppliedAdapter> Probe(
      WeightSet set, const std::vector<int32_t>& probe_ids) = 0;

  // Scores the views with a loaded set of weights, or the base, and passes them
  // to `sink` in order. The numbers depend only on the weights and the view,
  // not on earlier or announced requests. Returns CANCELLED if `sink` wants no
  // further views. The input must be valid for the model.
  virtual absl::StatusOr<ScoreWork> Score(const ScoreInput& input,
                                          const ViewSink& sink) = 0;

  // Returns how many requests should be scored together: more than one if a
  // pass over the model is more efficient with more tokens.
  virtual int64_t most_together() const { return 1; }
  // Scores several requests. Each gets the same bits as from Score, and its own
  // outcome; views of different requests reach their sinks in any order.
  virtual std::vector<absl::StatusOr<ScoreWork>> ScoreTogether(
      std::span<const ScoreJob> jobs) {
    std::vector<absl::StatusOr<ScoreWork>> outcomes;
    for (const ScoreJob& job : jobs) {
      outcomes.push_back(Score(*job.input, job.sink));
    }
    return outcomes;
  }

  // Returns the tokens of a whole chunk, the unit in which prefixes are
  // computed ahead.
  virtual int64_t chunk_tokens() const = 0;
  // Computes whole chunks of sequences under one set of weights, as many as one
  // pass holds, and moves their prefixes on. The set is the first sequence's;
  // if its sequences do not fill a pass, the next set whose sequences fill one.
  // Returns the number of computed tokens; 0 if no whole chunk is left, if held
  // chunks leave no memory, or if no set fills a pass yet.
  virtual absl::StatusOr<int64_t> Advance(
      std::span<const AheadSequence> sequences) = 0;

  // Drops every kept chunk that is not held.
  virtual void Forget() = 0;
};

}  // namespace dapd
