#include "common/gpus/cuda_backend.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::MatchesRegex;

TEST(CudaBackendTest, KernelsAreToldWithTheirCompilerAndArchitectures) {
  const std::string kernels = CudaKernels();
  EXPECT_THAT(
      kernels,
      AnyOf(std::string(),
            MatchesRegex(
                "by nvcc 13\\.[0-9.]+ for sm_80, sm_90, sm_100, sm_120")));
}

TEST(CudaBackendTest, AMissingLibraryIsNamedWithThePackageThatHasIt) {
  EXPECT_THAT(MissingLibraryAdvice("libnccl.so.2: cannot open shared object "
                                   "file: No such file or directory"),
              HasSubstr("NCCL is missing; it comes with the Python package "
                        "nvidia-nccl-cu13"));
  EXPECT_THAT(MissingLibraryAdvice("libcublasLt.so.13: cannot open"),
              HasSubstr("package nvidia-cublas:"));
  EXPECT_THAT(MissingLibraryAdvice("libtorch_cuda.so: cannot open shared "
                                   "object file"),
              HasSubstr("torch is a CPU build"));
  EXPECT_THAT(MissingLibraryAdvice("libother.so: undefined symbol"),
              HasSubstr("reinstall CUDA's libraries"));
}

}  // namespace
}  // namespace dapd
