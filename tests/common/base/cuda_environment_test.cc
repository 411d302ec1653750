#include "common/base/cuda_environment.h"

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace dapd {
namespace {

std::string Get(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "unset" : value;
}

class CudaEnvironmentTest : public testing::Test {
 protected:
  CudaEnvironmentTest() {
    for (const char* name : {"PYTORCH_ALLOC_CONF",
                             "PYTORCH_CUDA_ALLOC_CONF",
                             "NCCL_GRAPH_REGISTER",
                             "NCCL_NVLS_ENABLE",
                             "CUBLAS_WORKSPACE_CONFIG",
                             "CUDA_MPS_CLIENT_PRIORITY",
                             "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}) {
      ::unsetenv(name);
    }
  }
};

TEST_F(CudaEnvironmentTest, SegmentsGrowByDefault) {
  SetCudaEnvironment(/*deterministic=*/false);
  EXPECT_EQ(Get("PYTORCH_ALLOC_CONF"), "expandable_segments:True");
  EXPECT_EQ(Get("CUBLAS_WORKSPACE_CONFIG"), "unset");
}

TEST_F(CudaEnvironmentTest, RanksMapNoBuffersOfGraphs) {
  SetCudaEnvironment(/*deterministic=*/false);
  EXPECT_EQ(Get("NCCL_GRAPH_REGISTER"), "0");
}

TEST_F(CudaEnvironmentTest, DeterministicProductsHaveTheirWorkspace) {
  SetCudaEnvironment(/*deterministic=*/true);
  EXPECT_EQ(Get("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
}

TEST_F(CudaEnvironmentTest, DeterministicSumsAreNotLeftToTheSwitches) {
  SetCudaEnvironment(/*deterministic=*/false);
  EXPECT_EQ(Get("NCCL_NVLS_ENABLE"), "unset");
  SetCudaEnvironment(/*deterministic=*/true);
  EXPECT_EQ(Get("NCCL_NVLS_ENABLE"), "0");
}

TEST_F(CudaEnvironmentTest, WhatTheUserHasSetStays) {
  ::setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64", 1);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  ::setenv("NCCL_GRAPH_REGISTER", "1", 1);
  SetCudaEnvironment(/*deterministic=*/true);
  EXPECT_EQ(Get("PYTORCH_ALLOC_CONF"), "unset") << "of two names one counts";
  EXPECT_EQ(Get("CUBLAS_WORKSPACE_CONFIG"), ":16:8");
  EXPECT_EQ(Get("NCCL_GRAPH_REGISTER"), "1");
  ::unsetenv("PYTORCH_CUDA_ALLOC_CONF");
  ::setenv("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", 1);
  SetCudaEnvironment(/*deterministic=*/false);
  EXPECT_EQ(Get("PYTORCH_ALLOC_CONF"), "backend:cudaMallocAsync");
}

TEST_F(CudaEnvironmentTest, WhoGivesWayIsBehindTheOthersAndMayLeaveThemRoom) {
  GiveWayOnSharedGpu(0);
  EXPECT_EQ(Get("CUDA_MPS_CLIENT_PRIORITY"), "1");
  EXPECT_EQ(Get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "unset");
  ::setenv("CUDA_MPS_CLIENT_PRIORITY", "0", 1);
  GiveWayOnSharedGpu(60);
  EXPECT_EQ(Get("CUDA_MPS_CLIENT_PRIORITY"), "0") << "the user's";
  EXPECT_EQ(Get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "60");
  GiveWayOnSharedGpu(70);
  EXPECT_EQ(Get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "60");
}

}  // namespace
}  // namespace dapd
