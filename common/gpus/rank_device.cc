#include "common/gpus/rank_device.h"

#include "absl/strings/str_cat.h"

#include "common/gpus/cuda_backend.h"

namespace dapd {
namespace {

// NCCL writes 2.28.9 as 22809.
std::string NcclVersionText(int version) {
  return absl::StrCat(
      version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

std::string DescribeRankDevice(const GpuReport& report, int nccl) {
  if (report.gpus.empty()) return "";
  const Gpu& gpu = report.gpus.front();
  std::string text = absl::StrCat(gpu.name, " (sm_", gpu.major, gpu.minor, ")");
  if (!report.driver.empty())
    absl::StrAppend(&text, ", driver ", report.driver);
  if (nccl > 0) absl::StrAppend(&text, ", NCCL ", NcclVersionText(nccl));
  return text;
}

std::string RankDevice(bool on_gpu) {
  if (!on_gpu) return "";
  int (*nccl)() = nullptr;
  const int version = FindCudaFunction("DapdNcclVersion", &nccl) ? nccl() : 0;
  return DescribeRankDevice(FindGpus(), version);
}

}  // namespace dapd
