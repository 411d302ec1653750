#include "common/base/visible_gpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace dapd {
namespace {

// Accepts "nvidia0", but not "nvidiactl" or "nvidia-uvm".
bool IsGpu(absl::string_view name) {
  return absl::ConsumePrefix(&name, "nvidia") && !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c));
         });
}

}  // namespace

std::vector<std::string> GpuNodes(const std::string& devices) {
  std::vector<std::string> nodes;
  std::error_code error;
  std::filesystem::directory_iterator entry(devices, error);
  for (; !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (IsGpu(name)) nodes.push_back(name);
  }
  // This sorts by number, because a shorter name has the smaller number.
  std::ranges::sort(nodes, {}, [](const std::string& name) {
    return std::pair(name.size(), name);
  });
  return nodes;
}

std::vector<std::string> NamedGpus(absl::string_view setting) {
  std::vector<std::string> gpus;
  for (const absl::string_view entry :
       absl::StrSplit(setting, ',', absl::SkipWhitespace())) {
    gpus.emplace_back(absl::StripAsciiWhitespace(entry));
  }
  if (!gpus.empty() && (gpus.front() == "-1" || gpus.front() == "NoDevFiles")) {
    gpus.clear();
  }
  return gpus;
}

std::vector<std::string> VisibleGpus(const std::string& devices) {
  if (const char* named = std::getenv(kVisibleGpusVariable); named != nullptr) {
    return NamedGpus(named);
  }
  std::vector<std::string> gpus;
  const size_t count = GpuNodes(devices).size();
  while (gpus.size() < count) gpus.push_back(absl::StrCat(gpus.size()));
  return gpus;
}

bool RanksMayShareAGpu() {
  const char* const setting = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return setting != nullptr && absl::string_view(setting) == "1";
}

std::string GpuSetting(const std::vector<std::string>& gpus) {
  return absl::StrCat(kVisibleGpusVariable, "=", absl::StrJoin(gpus, ","));
}

std::vector<std::string> GpuDealer::Deal(size_t count) {
  std::vector<std::string> dealt;
  for (count = std::min(count, gpus_.size()); count > 0; --count) {
    dealt.push_back(gpus_[next_++ % gpus_.size()]);
  }
  return dealt;
}

}  // namespace dapd
