#include "common/model/spec/executor_support.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/log.h"

namespace dapd {
namespace {

using enum Executor;

// A trait beyond plain layers, and the fast executors that compute a model with
// this trait. The kernels of the loss do not see the layers.
struct Trait {
  std::string reason;
  std::vector<Executor> computed_by = {kHeadKernels};
};

void AddTraitsOfLayer(const LayerRecipe& recipe, std::vector<Trait>* traits) {
  const auto add = [traits](const std::string& reason) {
    const bool is_new =
        std::ranges::count(*traits, reason, &Trait::reason) == 0;
    if (is_new) traits->push_back({.reason = reason});
  };
  const AttentionRecipe& attention = recipe.attention;
  if (attention.softcap > 0.0) {
    add(absl::StrCat(
        "attention scores are capped (softcap ", attention.softcap, ")"));
  }
  if (attention.window > 0) {
    add(absl::StrCat(
        "layers attend to a window of ", attention.window, " tokens"));
  }
  if (!attention.HasUsualScale()) {
    add(absl::StrCat("attention scores are scaled by ", attention.scale));
  }
  if (attention.rotated_dim != attention.head_dim) {
    add(absl::StrCat(
        "only ", attention.rotated_dim, " dimensions of a head turn"));
  }
  if (recipe.HasNorm(NormPlace::kAfterAttention) ||
      recipe.HasNorm(NormPlace::kAfterMlp)) {
    add("norms stand behind attention and MLP");
  }
  if (recipe.norm_scale != NormScale::kWeight) {
    add("norms multiply by one plus their weight");
  }
  if (recipe.mlp.activation != Activation::kSilu) {
    add("the activation is GELU");
  }
}

std::vector<Trait> TraitsOf(const ModelConfig& model) {
  std::vector<Trait> traits;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    AddTraitsOfLayer(LayerRecipeOf(model, layer), &traits);
  }
  const ModelRecipe recipe = ModelRecipeOf(model);
  if (recipe.embedding_scale != 1.0) {
    traits.push_back({.reason = "the embedding is scaled"});
  }
  if (recipe.logit_softcap > 0.0) {
    // The passes of training and scoring end before the head.
    traits.push_back(
        {.reason = absl::StrCat(
             "final logits are capped (softcap ", recipe.logit_softcap, ")"),
         .computed_by = {kLayerPass}});
  }
  return traits;
}

}  // namespace

std::string Misfit(Executor executor, const ModelConfig& model) {
  std::vector<std::string> reasons;
  for (const Trait& trait : TraitsOf(model)) {
    if (std::ranges::count(trait.computed_by, executor) == 0) {
      reasons.push_back(trait.reason);
    }
  }
  return absl::StrJoin(reasons, ", ");
}

std::string ByLibTorch(const std::string& misfit) {
  return absl::StrCat("by LibTorch, since ", misfit);
}

bool WarnUnlessSupported(absl::string_view work,
                         Executor executor,
                         const ModelConfig& model) {
  const std::string misfit = Misfit(executor, model);
  if (!misfit.empty()) LogWarning(absl::StrCat(work, " ", ByLibTorch(misfit)));
  return misfit.empty();
}

std::vector<SlowWork> SlowWorkOf(const ModelConfig& model, bool on_gpu) {
  std::vector<SlowWork> slow;
  const auto add = [&](const char* work, Executor executor) {
    std::string misfit = Misfit(executor, model);
    if (!misfit.empty()) slow.push_back({work, std::move(misfit)});
  };
  add("decoding", on_gpu ? kCudaDecoder : kCpuDecoder);
  add("training", kLayerPass);
  add("scoring", kLayerPass);
  add("loss", kHeadKernels);
  return slow;
}

}  // namespace dapd
