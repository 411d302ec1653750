// What the tests share that compare a GPU with the CPU in either precision.
// tests/gpu/pack.py packs a program of which a file includes this.
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

// Skips itself without a GPU, unless the host simulates one (tests/fakes/
// torch_device). A SetUp that goes on behind this one asks IsSkipped().
class CudaPrecisionTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    // Before LibTorch is asked: it looks for its CUDA backend when it is first
    // asked about CUDA, and never again.
    const auto device = DeviceOf(DeviceChoice::kCuda);
    const bool is_simulated = !device.ok() && at::hasCUDA();
    if (!device.ok() && !is_simulated) {
      GTEST_SKIP() << "no CUDA device: " << device.status().message();
    }
  }
};

}  // namespace dapd
