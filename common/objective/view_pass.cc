#include "common/objective/view_pass.h"

#include <algorithm>
#include <numeric>

#include "common/tensor/device_copy.h"

namespace dapd {
namespace {

bool IsPrefix(const View& view, const std::vector<int32_t>& sequence) {
  const int64_t needed = NeededTokens(view);
  return needed <= static_cast<int64_t>(sequence.size()) &&
         std::equal(view.input_ids.begin(),
                    view.input_ids.begin() + needed,
                    sequence.begin());
}

}  // namespace

std::vector<const View*> Pick(const Views& views,
                              const std::vector<ViewName>& names) {
  std::vector<const View*> picked;
  for (const ViewName name : names) {
    picked.push_back(&views[static_cast<size_t>(name)]);
  }
  return picked;
}

int64_t NeededTokens(const View& view) {
  return view.scored_from + view.scored_count - 1;
}

PassPlan PlanPass(std::span<const View* const> views) {
  // The longest view comes first, so that a prefix finds the sequence that
  // contains it.
  std::vector<size_t> order(views.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return NeededTokens(*views[a]) > NeededTokens(*views[b]);
  });
  PassPlan plan;
  plan.sequence_of_view.resize(views.size());
  for (const size_t index : order) {
    const View& view = *views[index];
    const auto found = std::find_if(
        plan.sequences.begin(),
        plan.sequences.end(),
        [&](const auto& sequence) { return IsPrefix(view, sequence); });
    plan.sequence_of_view[index] =
        static_cast<size_t>(found - plan.sequences.begin());
    if (found == plan.sequences.end()) {
      plan.sequences.emplace_back(view.input_ids.begin(),
                                  view.input_ids.begin() + NeededTokens(view));
      plan.num_tokens += NeededTokens(view);
    }
  }
  return plan;
}

PackedViews PackViews(std::span<const View* const> views, at::Device device) {
  for (const View* view : views) {
    TORCH_CHECK(view->scored_from >= 1 && view->scored_count >= 1 &&
                    view->scored_from + view->scored_count <=
                        static_cast<int64_t>(view->input_ids.size()),
                "[view_pass] scored range ",
                view->scored_from,
                " + ",
                view->scored_count,
                " lies outside a view of ",
                view->input_ids.size(),
                " tokens");
  }
  PackedViews packed;
  packed.plan = PlanPass(views);
  const PassPlan& plan = packed.plan;
  packed.tokens = PackTokens(plan.sequences, device);
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < views.size(); ++i) {
    const int64_t first = packed.tokens.offsets[plan.sequence_of_view[i]] +
                          views[i]->scored_from - 1;
    rows.push_back(at::arange(
        first, first + views[i]->scored_count, at::TensorOptions(at::kLong)));
    packed.counts.push_back(views[i]->scored_count);
  }
  packed.rows = ToDevice(at::cat(rows), device);
  return packed;
}

std::vector<at::Tensor> HiddenOfViews(const ModelWeights& weights,
                                      const Adapter* adapter,
                                      std::span<const View* const> views) {
  const PackedViews packed = PackViews(views, weights.device());
  return ForwardHidden(weights, adapter, packed.tokens, packed.rows)
      .split_with_sizes(packed.counts, 0);
}

}  // namespace dapd
