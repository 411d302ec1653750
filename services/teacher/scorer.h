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

// The prefix of a token sequence, computed ahead and kept.
struct HeldPrefix {
  int64_t tokens = 0;
  std::shared_ptr<const void> hold;  // keeps it; the scorer's own
};

class Scorer {
 public:
  virtual ~Scorer() = default;

  // Makes the upload its set of weights, and probes it; of the base there is
  // only the probe. On error the old one stays.
  virtual absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) = 0;

  // Scores the views, with a set of weights that was loaded or the base, and
  // hands them to `sink` in order. The numbers depend on
  // the weights and the view only, not on what was computed ahead or before.
  // CANCELLED if the sink wanted no more. The input is valid for the model.
  virtual absl::StatusOr<ScoreWork> Score(const ScoreInput& input,
                                          const ViewSink& sink) = 0;

  // Computes one more chunk of the sequence that begins with `ids`, behind
  // `prefix`, which holds it then. False if no whole chunk is left, or if what
  // is held already leaves no memory.
  virtual absl::StatusOr<bool> Advance(WeightSet weights,
                                       const std::vector<int32_t>& ids,
                                       HeldPrefix* prefix) = 0;

  // Drops whatever is kept and not held.
  virtual void Forget() = 0;
};

}  // namespace dapd
