// LibTorch's deterministic algorithms, as long as an object exists.
#pragma once

#include "common/tensor/aten.h"

namespace dapd {

class DeterministicAlgorithms {
 public:
  DeterministicAlgorithms() {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  ~DeterministicAlgorithms() {
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  }
};

}  // namespace dapd
