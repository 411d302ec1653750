#include "common/model/recompute.h"

#include <utility>
#include <vector>

namespace dapd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the backward pass needs besides tensors.
struct Recipe : torch::CustomClassHolder {
  LayerFunction function;
  std::vector<size_t> targets;  // projections that have a pair
};

LoraLayer ToLayer(const std::vector<size_t>& targets,
                  const variable_list& tensors,
                  size_t first) {
  LoraLayer lora;
  for (size_t i = 0; i < targets.size(); ++i) {
    lora[targets[i]] = {tensors[first + 2 * i], tensors[first + 2 * i + 1]};
  }
  return lora;
}

struct RecomputedLayer : torch::autograd::Function<RecomputedLayer> {
  static at::Tensor forward(AutogradContext* context,
                            const at::Tensor& x,
                            at::TensorList pairs,
                            const c10::intrusive_ptr<Recipe>& recipe) {
    variable_list saved = {x};
    saved.insert(saved.end(), pairs.begin(), pairs.end());
    context->saved_data["recipe"] = at::IValue::make_capsule(recipe);
    at::Tensor out =
        recipe->function(x, ToLayer(recipe->targets, saved, /*first=*/1));
    context->save_for_backward(std::move(saved));
    return out;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& grad_outputs) {
    const auto recipe = c10::static_intrusive_pointer_cast<Recipe>(
        context->saved_data["recipe"].toCapsule());
    const variable_list saved = context->get_saved_variables();
    variable_list inputs;
    variable_list wanted;
    for (size_t i = 0; i < saved.size(); ++i) {
      inputs.push_back(
          saved[i].detach().requires_grad_(context->needs_input_grad(i)));
      if (inputs.back().requires_grad()) wanted.push_back(inputs.back());
    }
    at::AutoGradMode with_grad(true);
    const at::Tensor out = recipe->function(
        inputs[0], ToLayer(recipe->targets, inputs, /*first=*/1));
    const variable_list found =
        torch::autograd::grad({out}, wanted, {grad_outputs[0]});
    variable_list gradients;
    size_t next = 0;
    for (const at::Tensor& input : inputs) {
      gradients.push_back(input.requires_grad() ? found[next++] : at::Tensor());
    }
    gradients.emplace_back();  // the recipe
    return gradients;
  }
};

}  // namespace

at::Tensor RunRecomputed(const LayerFunction& function,
                         const at::Tensor& x,
                         const LoraLayer& lora) {
  auto recipe = c10::make_intrusive<Recipe>();
  recipe->function = function;
  std::vector<at::Tensor> tensors;
  for (size_t p = 0; p < lora.size(); ++p) {
    if (!lora[p].a.defined()) continue;
    recipe->targets.push_back(p);
    tensors.push_back(lora[p].a);
    tensors.push_back(lora[p].b);
  }
  return RecomputedLayer::apply(x, at::TensorList(tensors), recipe);
}

}  // namespace dapd
