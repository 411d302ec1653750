// Tests that compare a GPU with the CPU in both precisions share this header.
// tests/gpu/pack.py packs programs with a file that includes it.
#pragma once

#include <string>

#include "gtest/gtest.h"

#include "common/model/weights/placement.h"
#include "common/tensor/aten.h"

namespace dapd {

inline auto CudaPrecisions() {
  return testing::Values(at::kFloat, at::kBFloat16);
}

inline std::string CudaPrecisionName(
    const testing::TestParamInfo<at::ScalarType>& info) {
  return info.param == at::kFloat ? "float32" : "bfloat16";
}

// Skips the test without a GPU, unless the host simulates one
// (tests/fakes/torch_device). A SetUp that continues behind this one must check
// IsSkipped().
class CudaPrecisionTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    // DeviceOf must come before any question to LibTorch, which looks for
    // its CUDA backend only when it is first asked about CUDA.
    const auto device = DeviceOf(DeviceChoice::kCuda);
    const bool is_simulated = !device.ok() && at::hasCUDA();
    if (!device.ok() && !is_simulated) {
      GTEST_SKIP() << "no CUDA device: " << device.status().message();
    }
  }
};

}  // namespace dapd
