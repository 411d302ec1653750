// Describes the kind of GPU, the driver and the NCCL of a rank. The ranks of
// one job must have the same, so that their results agree bit by bit; they
// compare the descriptions when they join (RankOptions of common/collective).
#pragma once

#include <string>

#include "common/gpus/gpu_report.h"

namespace dapd {

// Returns "NVIDIA H100 80GB HBM3 (sm_90), driver 580.82.07, NCCL 2.28.9" for
// the first GPU of `report`. `nccl` is DapdNcclVersion's number, 0 if unknown.
// Returns an empty string without a GPU.
std::string DescribeRankDevice(const GpuReport& report, int nccl);

// Returns the description of this process, which loads libdapd_cuda.so; empty
// if it computes on the CPU, which `on_gpu` says.
std::string RankDevice(bool on_gpu);

}  // namespace dapd
