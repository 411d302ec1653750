#include "common/objective/gradient_sums.h"

namespace dapd {
namespace {

void AddTo(const std::vector<at::Tensor>& gradient,
           std::vector<at::Tensor>* sum) {
  if (sum->empty()) {
    for (const at::Tensor& tensor : gradient) {
      sum->push_back(at::zeros(tensor.sizes(), at::kFloat));
    }
  }
  for (size_t i = 0; i < gradient.size(); ++i) {
    (*sum)[i].add_(gradient[i].to(at::kCPU));
  }
}

// Returns the [n, n] matrix row after row.
std::vector<double> Rows(const at::Tensor& matrix) {
  const at::Tensor rows = matrix.contiguous();
  return {rows.const_data_ptr<double>(),
          rows.const_data_ptr<double>() + rows.numel()};
}

}  // namespace

int64_t GradientSums::BytesOfSum(const Adapter& adapter) {
  int64_t elements = 0;
  for (const at::Tensor& tensor : adapter.Tensors()) {
    elements += tensor.numel();
  }
  return 2 * elements * static_cast<int64_t>(sizeof(float));
}

void GradientSums::Add(const std::vector<at::Tensor>& first,
                       const std::vector<at::Tensor>& second) {
  at::NoGradGuard no_grad;
  const auto index = static_cast<size_t>(num_problems_ % max_sums_);
  if (index == sums_.size()) sums_.emplace_back();
  Sum& sum = sums_[index];
  AddTo(first, &sum.first);
  AddTo(second, &sum.second);
  ++sum.problems;
  ++num_problems_;
}

GradientProducts GradientSums::Products() const {
  at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(sums_.size());
  const auto options = at::TensorOptions(at::kDouble);
  at::Tensor first = at::zeros({count, count}, options);
  at::Tensor second = at::zeros({count, count}, options);
  at::Tensor cross = at::zeros({count, count}, options);
  const size_t tensors = sums_.empty() ? 0 : sums_[0].first.size();
  for (size_t i = 0; i < tensors; ++i) {
    std::vector<at::Tensor> firsts;
    std::vector<at::Tensor> seconds;
    for (const Sum& sum : sums_) {
      firsts.push_back(sum.first[i].flatten());
      seconds.push_back(sum.second[i].flatten());
    }
    const at::Tensor one = at::stack(firsts).to(at::kDouble);
    const at::Tensor two = at::stack(seconds).to(at::kDouble);
    first.addmm_(one, one.t());
    second.addmm_(two, two.t());
    cross.addmm_(one, two.t());
  }
  GradientProducts products;
  for (const Sum& sum : sums_) products.problems.push_back(sum.problems);
  products.first = Rows(first);
  products.second = Rows(second);
  products.cross = Rows(cross);
  return products;
}

}  // namespace dapd
