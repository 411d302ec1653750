// The trainable state of a run: the live adapter with its optimizer, and the
// copies of the adapter that teachers read. These are the snapshot and, if a
// term asks for it, the exponential moving average.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/model/weights/adapter.h"
#include "common/tensor/aten.h"
#include "common/terms/weight_set.h"
#include "common/training/optimizer_options.h"
#include "common/training/step_report.h"

namespace torch::optim {
class AdamW;
struct AdamWParamState;
}  // namespace torch::optim

namespace dapd {

// Everything that a later step depends on.
struct PolicyState {
  Adapter live;
  std::optional<Adapter> snapshot;  // absent: the base
  std::optional<Adapter> ema;       // Policy::ema
  std::optional<Adapter> previous;  // Policy::previous
  NamedTensors moments;             // Policy::Moments
  int64_t version = 0;
  int64_t snapshot_version = 0;
  int64_t updates = 0;  // Policy::updates
};

// AdamW (Loshchilov & Hutter 2019; betas 0.9 and 0.999, eps 1e-8, no weight
// decay) on float32 master weights. Not thread-safe; the compute thread owns
// it.
class Policy {
 public:
  // `start` is the adapter at version 0. `snapshot` absent: the base. `ema` is
  // the moving average at that version, if one is kept; absent: `start`, as in
  // a run.
  Policy(Adapter start,
         std::optional<Adapter> snapshot,
         OptimizerOptions options,
         std::optional<Adapter> ema = std::nullopt);
  ~Policy();
  // Returns a policy that continues from `state`, bit for bit. Returns
  // INVALID_ARGUMENT if the moments do not belong to the adapter's tensors, or
  // if `state` lacks an adapter that is to be kept (the moving average or the
  // adapter of the step before).
  static absl::StatusOr<std::unique_ptr<Policy>> Restore(
      PolicyState state, OptimizerOptions options);

  // The live adapter. Its tensors require grad; AccumulateMicroBatch adds to
  // their .grad.
  const Adapter& live() const { return live_; }
  // Null while the snapshot is the base.
  const Adapter* snapshot() const {
    return snapshot_.has_value() ? &*snapshot_ : nullptr;
  }
  // The moving average of the adapters of all versions so far, from version 0
  // on, or from the first update on (ema_from_first_update). After each step it
  // becomes (1 - rate) ema + rate live, tensor by tensor in float32. Null if
  // none is kept.
  const Adapter* ema() const { return ema_.has_value() ? &*ema_ : nullptr; }
  // Returns the adapter of every set of weights that is kept; null: the set is
  // the base. The live adapter and its average are the base before the first
  // step of a fresh adapter.
  std::map<WeightSet, const Adapter*> WeightSets() const;
  // Returns the sets of weights that are the base.
  std::set<WeightSet> SetsAtBase() const;
  // Returns the version of a set of weights; 0: the base, or the adapter with
  // which the run started.
  int64_t VersionOf(WeightSet set) const;
  // The adapter at version() - 1, which still samples while the live adapter is
  // trained if rollout.max_staleness is 1. It is null at version 0, and if no
  // previous adapter is kept.
  const Adapter* previous() const {
    return previous_.has_value() ? &*previous_ : nullptr;
  }
  // Optimizer steps taken.
  int64_t version() const { return version_; }
  // Returns the version of which the snapshot is a copy; 0 at the start.
  int64_t snapshot_version() const { return snapshot_version_; }

  // Gets each of live().Tensors(), in that order, as soon as a step has made
  // its value final. An error ends the step there, and the policy must not be
  // used any more.
  using OnUpdated = std::function<absl::Status(const at::Tensor& tensor)>;

  // Clips the accumulated gradient, takes a step layer by layer, clears the
  // gradient, moves the average, and refreshes the snapshot if the new version
  // is a multiple of its interval. Returns the error of `on_updated`; DATA_LOSS
  // if the gradient is not finite, with the weights unchanged and `on_updated`
  // not called.
  absl::StatusOr<OptimizerStep> Step(const OnUpdated& on_updated = {});

  // Takes a step without a gradient: version and learning rate advance, but
  // weights, moments and moving average stay, as if the optimizer had not been
  // asked. The snapshot is refreshed as in Step, and `on_updated` gets every
  // tensor. Drops the accumulated gradient.
  absl::StatusOr<OptimizerStep> Rest(const OnUpdated& on_updated = {});

  // Returns the number of optimizer steps that moved the weights: version()
  // without the calls of Rest.
  int64_t updates() const { return updates_; }

  // Returns the accumulated gradient of all tensors, in the adapter's order,
  // concatenated to [N] float32 for N parameters, on the policy's device; zero
  // where nothing was accumulated. SetFlatGradient takes the same form.
  at::Tensor FlatGradient() const;
  void SetFlatGradient(const at::Tensor& gradient);

  // Multiplies the accumulated gradient.
  void ScaleGradient(double factor);

  // Returns the accumulated gradients by PEFT name, float32.
  NamedTensors Gradients() const;
  // Returns first and second moments by PEFT name with the suffixes ".exp_avg"
  // and ".exp_avg_sq"; empty before the first step.
  NamedTensors Moments() const;

 private:
  using ParamState = torch::optim::AdamWParamState;
  // Returns AdamW's state of a tensor of live_; null before the first step.
  const ParamState* StateOf(const at::Tensor& tensor) const;
  NamedTensors Collect(
      const std::vector<std::pair<std::string, at::Tensor>>& tensors) const;

  // Ends every step.
  void CountVersion(OptimizerStep* step);
  void UpdateEma();

  Adapter live_;
  bool start_is_base_ =
      false;  // whether live_ and ema_ are the base at version 0
  std::optional<Adapter> snapshot_;
  std::optional<Adapter> ema_;
  std::optional<Adapter> previous_;
  OptimizerOptions options_;
  int64_t version_ = 0;
  int64_t snapshot_version_ = 0;
  int64_t updates_ = 0;
  // One per layer. AdamW treats every parameter by itself, so together they are
  // one optimizer that can step layer by layer.
  std::vector<std::unique_ptr<torch::optim::AdamW>> optimizers_;
};

}  // namespace dapd
