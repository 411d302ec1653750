// The trainable state of a run: the live adapter with its optimizer, and the
// copies of it that teachers read: the snapshot and, where a term asks for it,
// the exponential moving average.
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

// All that a later step depends on.
struct PolicyState {
  Adapter live;
  std::optional<Adapter> snapshot;  // absent: the base
  std::optional<Adapter> ema;       // as Policy::ema
  std::optional<Adapter> previous;  // as Policy::previous
  NamedTensors moments;             // as Policy::Moments
  int64_t version = 0;
  int64_t snapshot_version = 0;
  int64_t updates = 0;  // as Policy::updates
};

// AdamW (Loshchilov & Hutter 2019; betas 0.9 and 0.999, eps 1e-8, no weight
// decay) on float32 master weights. Not thread-safe: owned by the compute
// thread.
class Policy {
 public:
  // `start`: the adapter at version 0. `snapshot`: absent means the base.
  // `ema`: the moving average then, where one is kept; absent means `start`, as
  // in a run.
  Policy(Adapter start,
         std::optional<Adapter> snapshot,
         OptimizerOptions options,
         std::optional<Adapter> ema = std::nullopt);
  ~Policy();
  // A policy that goes on where `state` was taken, bit for bit.
  // INVALID_ARGUMENT if the moments are not those of the adapter's tensors, or
  // an adapter that is to be kept, the moving average or the one of the step
  // before, is not there.
  static absl::StatusOr<std::unique_ptr<Policy>> Restore(
      PolicyState state, OptimizerOptions options);

  // Its tensors require grad; AccumulateMicroBatch adds to their .grad.
  const Adapter& live() const { return live_; }
  // Null while the snapshot is the base.
  const Adapter* snapshot() const {
    return snapshot_.has_value() ? &*snapshot_ : nullptr;
  }
  // The moving average of the adapters of all versions so far, from the one at
  // version 0 on, or from the first update on (ema_from_first_update): after
  // each step it becomes (1 - rate) ema + rate live, tensor by tensor in
  // float32. Null where none is kept.
  const Adapter* ema() const { return ema_.has_value() ? &*ema_ : nullptr; }
  // Every set of weights that is kept, by its adapter; null: it is the base, as
  // the live adapter and its average are before the first step of a fresh one.
  std::map<WeightSet, const Adapter*> WeightSets() const;
  // Those that are the base.
  std::set<WeightSet> SetsAtBase() const;
  // The version that a set of weights is of; 0: the base, or the adapter that
  // the run started from.
  int64_t VersionOf(WeightSet set) const;
  // The adapter at version() - 1, which still samples while this one is trained
  // if rollout.max_staleness is 1. Null at version 0, and where none is kept.
  const Adapter* previous() const {
    return previous_.has_value() ? &*previous_ : nullptr;
  }
  // Optimizer steps taken.
  int64_t version() const { return version_; }
  // The version that the snapshot is a copy of; 0 at the start.
  int64_t snapshot_version() const { return snapshot_version_; }

  // Gets each of live().Tensors(), in that order, as soon as a step has made
  // its value final. An error ends the step there: the policy is of no use
  // then.
  using OnUpdated = std::function<absl::Status(const at::Tensor& tensor)>;

  // Clips the accumulated gradient, takes a step layer by layer, clears the
  // gradient, moves the average, and refreshes the snapshot if the new version
  // is a multiple of its interval. DATA_LOSS, with the weights untouched and
  // nothing said, if the gradient is not finite; or the error of `on_updated`.
  absl::StatusOr<OptimizerStep> Step(const OnUpdated& on_updated = {});

  // A step that has nothing to learn from: the version goes up, and the
  // learning rate with it, but weights, moments and moving average stay, as if
  // the optimizer had not been asked. The snapshot is refreshed as by Step, and
  // `on_updated` gets every tensor. Drops what was accumulated.
  absl::StatusOr<OptimizerStep> Rest(const OnUpdated& on_updated = {});

  // Optimizer steps that moved the weights: version() without the rests.
  int64_t updates() const { return updates_; }

  // The accumulated gradient of all tensors, in the adapter's order, one behind
  // the other, [N] float32 for N parameters, on the policy's device; zero where
  // nothing was accumulated. Set takes the same form.
  at::Tensor FlatGradient() const;
  void SetFlatGradient(const at::Tensor& gradient);

  // Multiplies the accumulated gradient.
  void ScaleGradient(double factor);

  // The accumulated gradients by PEFT name, float32.
  NamedTensors Gradients() const;
  // First and second moments by PEFT name with the suffixes ".exp_avg" and
  // ".exp_avg_sq"; empty before the first step.
  NamedTensors Moments() const;

 private:
  using ParamState = torch::optim::AdamWParamState;
  // AdamW's state of a tensor of live_; null before the first step.
  const ParamState* StateOf(const at::Tensor& tensor) const;
  NamedTensors Collect(
      const std::vector<std::pair<std::string, at::Tensor>>& tensors) const;

  // What ends every step.
  void CountVersion(OptimizerStep* step);
  void UpdateEma();

  Adapter live_;
  bool start_is_base_ = false;  // live_ and ema_ of version 0
  std::optional<Adapter> snapshot_;
  std::optional<Adapter> ema_;
  std::optional<Adapter> previous_;
  OptimizerOptions options_;
  int64_t version_ = 0;
  int64_t snapshot_version_ = 0;
  int64_t updates_ = 0;
  // One per layer. AdamW treats every parameter by itself, so this is one
  // optimizer that can be asked for a layer at a time.
  std::vector<std::unique_ptr<torch::optim::AdamW>> optimizers_;
};

}  // namespace dapd
