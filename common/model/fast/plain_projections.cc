#include "common/model/fast/plain_projections.h"

#include <utility>

#include "common/model/fast/device_rows.h"
#include "common/model/fast/matrix_product.h"

namespace dapd {

ProjectionGroup::ProjectionGroup(const LayerWeights& weights,
                                 const LoraLayer* lora,
                                 double lora_scale,
                                 std::vector<Projection> projections)
    : weights_(weights),
      lora_(lora),
      scale_(lora_scale),
      projections_(std::move(projections)) {
  std::vector<at::Tensor> parts;
  int64_t columns = 0;
  for (const Projection projection : projections_) {
    first_.push_back(-1);
    if (lora_ == nullptr) continue;
    const at::Tensor& a = (*lora_)[static_cast<size_t>(projection)].a;
    if (!a.defined()) continue;
    first_.back() = columns;
    columns += a.size(0);
    parts.push_back(a.detach());
  }
  if (!parts.empty()) a_ = parts.size() == 1 ? parts[0] : at::cat(parts);
}

at::ScalarType ProjectionGroup::UpdateType(const at::Tensor& x) const {
  return x.is_cuda() || DeviceRowsFor(x) != nullptr ? x.scalar_type()
                                                    : a_.scalar_type();
}

int64_t ProjectionGroup::RoomFor(const at::Tensor& like) const {
  constexpr int64_t kAligned = 8;  // numbers; rows with room stay aligned
  if (!a_.defined() || DeviceRowsFor(like) == nullptr) return 0;
  const bool is_worth_it = like.size(0) > a_.size(1);
  return is_worth_it && a_.size(0) % kAligned == 0 ? a_.size(0) : 0;
}

at::Tensor ProjectionGroup::JoinedWeight(size_t i) const {
  const auto p = static_cast<size_t>(projections_[i]);
  const at::Tensor& weight = weights_.weight[p];
  if (first_[i] < 0) return weight;
  std::vector<at::Tensor> parts = {weight};
  if (first_[i] > 0) {
    parts.push_back(at::zeros({weight.size(0), first_[i]}, weight.options()));
  }
  parts.push_back((*lora_)[p].b.detach().to(weight.scalar_type()));
  return at::cat(parts, 1);
}

std::vector<at::Tensor> ProjectionGroup::ForwardJoined(
    const at::Tensor& x, at::Tensor* low_rank) const {
  const int64_t in = x.size(1);
  const int64_t columns = a_.size(0);
  const at::Tensor joined =
      x.as_strided({x.size(0), in + columns}, {x.stride(0), 1});
  at::Tensor low = joined.narrow(1, in, columns);
  MatrixProductInto(x, a_.to(x.scalar_type()).t(), low);
  low.mul_(scale_);
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < projections_.size(); ++i) {
    const at::Tensor weight = JoinedWeight(i);
    outputs.push_back(
        Linear(joined.narrow(1, 0, weight.size(1)),
               weight,
               weights_.bias[static_cast<size_t>(projections_[i])]));
  }
  *low_rank = low.contiguous();  // does not keep x beside it
  return outputs;
}

std::vector<at::Tensor> ProjectionGroup::Forward(const at::Tensor& x,
                                                 at::Tensor* low_rank) const {
  if (a_.defined() && x.stride(0) == x.size(1) + a_.size(0)) {
    return ForwardJoined(x, low_rank);
  }
  if (a_.defined()) {
    const at::ScalarType dtype = UpdateType(x);
    *low_rank = MatrixProductIn(dtype, x, a_.to(dtype).t()).mul_(scale_);
  }
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < projections_.size(); ++i) {
    const auto p = static_cast<size_t>(projections_[i]);
    at::Tensor y = Linear(x, weights_.weight[p], weights_.bias[p]);
    if (first_[i] >= 0) {
      const at::Tensor b = (*lora_)[p].b.detach().to(low_rank->scalar_type());
      AddMatrixProduct(low_rank->narrow(1, first_[i], b.size(1)), b.t(), y);
    }
    outputs.push_back(std::move(y));
  }
  return outputs;
}

at::Tensor ProjectionGroup::Backward(const std::vector<at::Tensor>& grads,
                                     const at::Tensor& x,
                                     const at::Tensor& low_rank,
                                     bool needs_input_gradient,
                                     LoraLayer* gradients) const {
  at::Tensor grad_x;
  if (needs_input_gradient) {
    for (size_t i = 0; i < projections_.size(); ++i) {
      const at::Tensor& weight =
          weights_.weight[static_cast<size_t>(projections_[i])];
      if (grad_x.defined()) {
        AddMatrixProduct(grads[i], weight, grad_x);
      } else {
        grad_x = MatrixProduct(grads[i], weight);
      }
    }
  }
  if (!a_.defined()) return grad_x;

  const at::ScalarType dtype = UpdateType(x);
  const at::ScalarType adapter_dtype = a_.scalar_type();
  at::Tensor grad_low_rank = at::empty_like(low_rank);  // gradient of x A^T
  for (size_t i = 0; i < projections_.size(); ++i) {
    if (first_[i] < 0) continue;
    const auto p = static_cast<size_t>(projections_[i]);
    const at::Tensor b = (*lora_)[p].b.detach().to(dtype);
    at::Tensor columns = grad_low_rank.narrow(1, first_[i], b.size(1));
    MatrixProductInto(grads[i], b, columns);
    (*gradients)[p].b = MatrixProductIn(
        adapter_dtype, grads[i].t(), low_rank.narrow(1, first_[i], b.size(1)));
  }
  grad_low_rank.mul_(scale_);
  const at::Tensor grad_a =
      MatrixProductIn(adapter_dtype, grad_low_rank.t(), x);
  for (size_t i = 0; i < projections_.size(); ++i) {
    if (first_[i] < 0) continue;
    const auto p = static_cast<size_t>(projections_[i]);
    (*gradients)[p].a = grad_a.narrow(0, first_[i], (*lora_)[p].a.size(0));
  }
  if (needs_input_gradient) {
    AddMatrixProduct(grad_low_rank, a_.to(dtype), grad_x);
  }
  return grad_x;
}

PlainProjections::PlainProjections(const LayerRecipe& recipe,
                                   const LayerWeights& weights,
                                   const LoraLayer* lora,
                                   double lora_scale)
    : groups_([&] {
        const auto groups = recipe.Groups();
        const auto group = [&](LayerProduct product) {
          return ProjectionGroup(weights,
                                 lora,
                                 lora_scale,
                                 groups.at(static_cast<size_t>(product)));
        };
        using enum LayerProduct;
        return std::array{group(kQkv), group(kO), group(kGateUp), group(kDown)};
      }()) {}

}  // namespace dapd
