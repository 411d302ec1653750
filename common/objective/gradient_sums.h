// Sums of two terms' gradients over problems, held on the host until all dot
// products between them are taken: what intervals over problems need of
// gradients that are too large to keep for every position.
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

  // Bytes of one sum, of both terms.
  static int64_t BytesOfSum(const Adapter& adapter);

  // A problem's mean gradients, of one adapter's tensors every time.
  void Add(const std::vector<at::Tensor>& first,
           const std::vector<at::Tensor>& second);

  // In double precision, tensor by tensor.
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
