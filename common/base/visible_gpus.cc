#include "common/base/visible_gpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace dapd {
namespace {

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";

}  // namespace

std::vector<std::string> VisibleGpus() {
  if (const char* named = std::getenv(kVariable); named != nullptr) {
    return absl::StrSplit(named, ',', absl::SkipWhitespace());
  }
  std::vector<std::string> gpus;
  std::error_code error;
  for (int i = 0;
       std::filesystem::exists(absl::StrCat("/dev/nvidia", i), error);
       ++i) {
    gpus.push_back(absl::StrCat(i));
  }
  return gpus;
}

std::string GpuSetting(const std::vector<std::string>& gpus) {
  return absl::StrCat(kVariable, "=", absl::StrJoin(gpus, ","));
}

std::vector<std::string> GpuDealer::Deal(size_t count) {
  std::vector<std::string> dealt;
  for (count = std::min(count, gpus_.size()); count > 0; --count) {
    dealt.push_back(gpus_[next_++ % gpus_.size()]);
  }
  return dealt;
}

}  // namespace dapd
