// Scorer: what the teacher worker needs of a model. The real one
// (model_scorer.h) computes with LibTorch; tests use a fake.
//
// Not thread-safe: owned by the worker's compute thread. Errors that come from
// the computation itself (out of memory, ...) are Status, not exceptions.
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

// What uploads may become; one that names no set becomes the first.
inline constexpr std::array kTeacherSets = {
    WeightSet::kSnapshot, WeightSet::kEma, WeightSet::kLive, WeightSet::kBase};

// One view's tensors by name, as teacher.proto's Payload lists them.
struct ViewScores {
  ViewName view = ViewName::kNoneRollout;
  std::vector<std::pair<std::string, HostTensor>> tensors;
};
// Takes one view's scores. False: nobody wants the rest.
using ViewSink = std::function<bool(ViewScores scores)>;

// Tokens that a request's views went through the model with.
struct ScoreWork {
  int64_t computed_tokens = 0;  // now
  int64_t reused_tokens = 0;    // before: ahead, or for another view
};

// A request of several that are scored together.
struct ScoreJob {
  const ScoreInput* input = nullptr;
  ViewSink sink;
};

// The prefix of a token sequence, computed ahead and kept.
struct HeldPrefix {
  int64_t tokens = 0;
  std::shared_ptr<const void> hold;  // keeps it; the scorer's own
};

// A sequence of which more may be computed ahead.
struct AheadSequence {
  WeightSet weights = WeightSet::kBase;
  const std::vector<int32_t>* ids = nullptr;  // as far as they are known
  HeldPrefix* prefix = nullptr;               // of them
};

class Scorer {
 public:
  virtual ~Scorer() = default;

  // Makes the upload its set of weights, any but the base, and probes it. On
  // error the old one stays.
  virtual absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) = 0;
  // Probes a set that was loaded, or the base.
  virtual absl::StatusOr<AppliedAdapter> Probe(
      WeightSet set, const std::vector<int32_t>& probe_ids) = 0;

  // Scores the views, with a set of weights that was loaded or the base, and
  // hands them to `sink` in order. The numbers depend on the weights and the
  // view only, not on what was computed ahead or before. CANCELLED if the sink
  // wanted no more. The input is valid for the model.
  virtual absl::StatusOr<ScoreWork> Score(const ScoreInput& input,
                                          const ViewSink& sink) = 0;

  // How many requests it is worth while to score together: more than one where
  // a pass over the model is the faster the more tokens it has.
  virtual int64_t most_together() const { return 1; }
  // Scores requests, of which each gets what Score would give it, bit for bit,
  // and its own outcome; views of different requests come to their sinks in any
  // order.
  virtual std::vector<absl::StatusOr<ScoreWork>> ScoreTogether(
      std::span<const ScoreJob> jobs) {
    std::vector<absl::StatusOr<ScoreWork>> outcomes;
    for (const ScoreJob& job : jobs) {
      outcomes.push_back(Score(*job.input, job.sink));
    }
    return outcomes;
  }

  // Tokens of a whole chunk, in which sequences are computed ahead.
  virtual int64_t chunk_tokens() const = 0;
  // Computes as many whole chunks as one pass holds, of sequences under the
  // same weights, and moves their prefixes on: under the first sequence's
  // weights or, where its set has too little for a pass, under the next that
  // has enough. Returns by how many tokens; 0 if no whole chunk is left, if
  // what is held already leaves no memory, or if no set fills a pass yet.
  virtual absl::StatusOr<int64_t> Advance(
      std::span<const AheadSequence> sequences) = 0;

  // Drops whatever is kept and not held.
  virtual void Forget() = 0;
};

}  // namespace dapd
