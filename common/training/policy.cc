#include "common/training/policy.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "torch/nn/utils/clip_grad.h"
#include "torch/optim/adamw.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// Returns whether every B is zero, as at the start of a fresh adapter.
bool ChangesNothing(const Adapter& adapter) {
  const at::NoGradGuard no_grad;
  for (const auto& layer : adapter.layers) {
    for (const LoraPair& pair : layer) {
      if (pair.b.defined() && at::any(pair.b != 0).item<bool>()) return false;
    }
  }
  return true;
}

}  // namespace

Policy::Policy(Adapter start,
               std::optional<Adapter> snapshot,
               OptimizerOptions options,
               std::optional<Adapter> ema)
    : live_(start.Clone()), snapshot_(std::move(snapshot)), options_(options) {
  for (auto& layer : live_.layers) {
    std::vector<at::Tensor> parameters;
    for (LoraPair& pair : layer) {
      if (!pair.a.defined()) continue;
      parameters.push_back(pair.a.requires_grad_(true));
      parameters.push_back(pair.b.requires_grad_(true));
    }
    optimizers_.push_back(std::make_unique<torch::optim::AdamW>(
        parameters,
        torch::optim::AdamWOptions(options_.learning_rate)
            .betas({0.9, 0.999})
            .eps(1e-8)
            .weight_decay(0.0)));
  }
  if (options_.ema_rate.has_value()) {
    ema_ = ema.has_value() ? std::move(ema) : live_.Clone();
  }
  start_is_base_ =
      ChangesNothing(live_) && (!ema_.has_value() || ChangesNothing(*ema_));
}

Policy::~Policy() = default;

absl::StatusOr<std::unique_ptr<Policy>> Policy::Restore(
    PolicyState state, OptimizerOptions options) {
  auto policy = std::make_unique<Policy>(
      std::move(state.live), std::move(state.snapshot), options);
  policy->version_ = state.version;
  policy->snapshot_version_ = state.snapshot_version;
  policy->updates_ = state.updates;
  if (state.version == 0) return policy;
  if (options.ema_rate.has_value()) {
    if (!state.ema.has_value()) {
      return absl::InvalidArgumentError(
          "the policy's state lacks the moving average of the adapter");
    }
    policy->ema_ = std::move(state.ema);
  }
  if (options.keep_previous) {
    if (!state.previous.has_value()) {
      return absl::InvalidArgumentError(
          "the policy's state lacks the adapter before its last step");
    }
    policy->previous_ = std::move(state.previous);
  }
  const std::vector<std::string> names = policy->live_.Names();
  std::map<std::string, const HostTensor*> moments;
  for (const auto& [name, tensor] : state.moments) moments[name] = &tensor;
  const auto moment =
      [&](const std::string& name,
          const at::Tensor& like) -> absl::StatusOr<at::Tensor> {
    const auto found = moments.find(name);
    if (found == moments.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the optimizer's state lacks ", name));
    }
    const at::Tensor tensor = ToTorch(*found->second);
    if (tensor.sizes() != like.sizes() || tensor.dtype() != at::kFloat) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the optimizer's ", name, " has a different shape or type"));
    }
    return tensor.to(like.device(), /*non_blocking=*/false, /*copy=*/true);
  };
  // An optimizer has no state before its first update.
  if (state.updates == 0 && moments.empty()) return policy;
  size_t i = 0;
  for (const auto& optimizer : policy->optimizers_) {
    for (const at::Tensor& tensor : optimizer->param_groups()[0].params()) {
      auto entry = std::make_unique<ParamState>();
      ASSIGN_OR_RETURN(const at::Tensor first,
                       moment(names[i] + ".exp_avg", tensor));
      ASSIGN_OR_RETURN(const at::Tensor second,
                       moment(names[i] + ".exp_avg_sq", tensor));
      entry->step(state.updates).exp_avg(first).exp_avg_sq(second);
      optimizer->state()[tensor.unsafeGetTensorImpl()] = std::move(entry);
      ++i;
    }
  }
  if (moments.size() != 2 * names.size()) {
    return absl::InvalidArgumentError(
        "the optimizer's state has tensors that the adapter lacks");
  }
  return policy;
}

absl::StatusOr<OptimizerStep> Policy::Step(const OnUpdated& on_updated) {
  OptimizerStep step;
  const std::vector<at::Tensor> parameters = live_.Tensors();
  step.gradient_norm =
      torch::nn::utils::clip_grad_norm_(parameters, options_.max_grad_norm);
  if (!std::isfinite(step.gradient_norm)) {
    for (at::Tensor tensor : parameters) tensor.mutable_grad().reset();
    return absl::DataLossError(
        absl::StrCat("the gradient of step ",
                     version_ + 1,
                     " is not finite (norm ",
                     step.gradient_norm,
                     "); the weights stay as they were"));
  }
  step.learning_rate = LearningRateAt(options_, version_ + 1);
  if (options_.keep_previous) previous_ = live_.Clone();
  for (const auto& optimizer : optimizers_) {
    torch::optim::OptimizerParamGroup& layer = optimizer->param_groups()[0];
    layer.options().set_lr(step.learning_rate);
    optimizer->step();
    for (at::Tensor& tensor : layer.params()) {
      // zero_grad would reject a gradient that is part of a larger tensor.
      tensor.mutable_grad().reset();
      if (on_updated) RETURN_IF_ERROR(on_updated(tensor));
    }
  }
  ++updates_;
  if (ema_.has_value()) UpdateEma();
  CountVersion(&step);
  return step;
}

absl::StatusOr<OptimizerStep> Policy::Rest(const OnUpdated& on_updated) {
  OptimizerStep step;
  step.learning_rate = LearningRateAt(options_, version_ + 1);
  if (options_.keep_previous) previous_ = live_.Clone();
  for (at::Tensor& tensor : live_.Tensors()) {
    tensor.mutable_grad().reset();
    if (on_updated) RETURN_IF_ERROR(on_updated(tensor));
  }
  CountVersion(&step);
  return step;
}

void Policy::CountVersion(OptimizerStep* step) {
  ++version_;
  if (version_ % options_.snapshot_interval != 0) return;
  snapshot_ = live_.Clone();
  snapshot_version_ = version_;
  step->snapshot_refreshed = true;
}

void Policy::UpdateEma() {
  const at::NoGradGuard no_grad;
  const bool begins = options_.ema_from_first_update && updates_ == 1;
  const double rate = begins ? 1.0 : *options_.ema_rate;
  const std::vector<at::Tensor> live = live_.Tensors();
  std::vector<at::Tensor> ema = ema_->Tensors();
  for (size_t i = 0; i < ema.size(); ++i) {
    ema[i].mul_(1.0 - rate).add_(live[i], rate);
  }
}

std::map<WeightSet, const Adapter*> Policy::WeightSets() const {
  const bool at_base = version_ == 0 && start_is_base_;
  std::map<WeightSet, const Adapter*> sets = {
      {WeightSet::kBase, nullptr},
      {WeightSet::kSnapshot, snapshot()},
      {WeightSet::kLive, at_base ? nullptr : &live_}};
  if (ema_.has_value()) sets[WeightSet::kEma] = at_base ? nullptr : &*ema_;
  return sets;
}

std::set<WeightSet> Policy::SetsAtBase() const {
  std::set<WeightSet> sets;
  for (const auto& [set, adapter] : WeightSets()) {
    if (adapter == nullptr) sets.insert(set);
  }
  return sets;
}

int64_t Policy::VersionOf(WeightSet set) const {
  switch (set) {
    case WeightSet::kBase:
      return 0;
    case WeightSet::kSnapshot:
      return snapshot_version_;
    case WeightSet::kEma:
    case WeightSet::kLive:
      return version_;
  }
  return 0;
}

NamedTensors Policy::Collect(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors) const {
  NamedTensors collected;
  for (const auto& [name, tensor] : tensors) {
    auto host = FromTorch(tensor.detach().cpu().contiguous());
    Check(host.ok(), "float32 tensors have a host form");
    collected.emplace_back(name, *std::move(host));
  }
  return collected;
}

at::Tensor Policy::FlatGradient() const {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : live_.Tensors()) {
    const at::Tensor& gradient = tensor.grad();
    parts.push_back(gradient.defined()
                        ? gradient.flatten()
                        : at::zeros({tensor.numel()}, tensor.options()));
  }
  return at::cat(parts).detach().contiguous();
}

void Policy::SetFlatGradient(const at::Tensor& gradient) {
  int64_t next = 0;
  for (at::Tensor& tensor : live_.Tensors()) {
    tensor.mutable_grad() =
        gradient.narrow(0, next, tensor.numel()).view(tensor.sizes()).clone();
    next += tensor.numel();
  }
  Check(next == gradient.numel(), "a gradient of this policy's length");
}

void Policy::ScaleGradient(double factor) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : live_.Tensors()) {
    if (tensor.grad().defined()) tensor.mutable_grad().mul_(factor);
  }
}

NamedTensors Policy::Gradients() const {
  std::vector<std::pair<std::string, at::Tensor>> gradients;
  const std::vector<std::string> names = live_.Names();
  const std::vector<at::Tensor> tensors = live_.Tensors();
  for (size_t i = 0; i < names.size(); ++i) {
    gradients.emplace_back(names[i],
                           tensors[i].grad().defined()
                               ? tensors[i].grad()
                               : at::zeros_like(tensors[i]));
  }
  return Collect(gradients);
}

const Policy::ParamState* Policy::StateOf(const at::Tensor& tensor) const {
  for (const auto& optimizer : optimizers_) {
    const auto found = optimizer->state().find(tensor.unsafeGetTensorImpl());
    if (found == optimizer->state().end()) continue;
    return static_cast<const ParamState*>(found->second.get());
  }
  return nullptr;
}

NamedTensors Policy::Moments() const {
  std::vector<std::pair<std::string, at::Tensor>> moments;
  const std::vector<std::string> names = live_.Names();
  const std::vector<at::Tensor> tensors = live_.Tensors();
  for (size_t i = 0; i < names.size(); ++i) {
    const ParamState* state = StateOf(tensors[i]);
    if (state == nullptr) continue;
    moments.emplace_back(names[i] + ".exp_avg", state->exp_avg());
    moments.emplace_back(names[i] + ".exp_avg_sq", state->exp_avg_sq());
  }
  return Collect(moments);
}

}  // namespace dapd
