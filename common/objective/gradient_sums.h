// Sums of two terms' gradients over problems, held on the host until all dot
// products between them are taken. Confidence intervals over problems need only
// these sums, and gradients of every position would be too large to keep.
#pragma once

#include <cstdint>
#include <vector>

#include "common/data/gradient_compatibility.h"
#include "common/model/weights/adapter.h"
#include "common/tensor/aten.h"

namespace dapd {

// Not thread-safe.
class GradientSums {
 public:
  // Problems beyond the first `max_sums` (at least 1) share sums in turn.
  explicit GradientSums(int64_t max_sums) : max_sums_(max_sums) {}

  // Returns the bytes of one sum, for both terms together.
  static int64_t BytesOfSum(const Adapter& adapter);

  // Adds the mean gradients of a problem. Every call passes tensors of the same
  // adapter.
  void Add(const std::vector<at::Tensor>& first,
           const std::vector<at::Tensor>& second);

  // Returns all dot products, computed in double precision, tensor by tensor.
  GradientProducts Products() const;

 private:
  struct Sum {
    int64_t problems = 0;
    std::vector<at::Tensor> first;  // float32, CPU
    std::vector<at::Tensor> second;
  };

  const int64_t max_sums_;
  int64_t num_problems_ = 0;
  std::vector<Sum> sums_;
};

}  // namespace dapd
