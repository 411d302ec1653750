// GPUs by name, without CUDA: for a program that starts others which use them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// Names GPUs by their numbers or ids, with commas between them.
inline constexpr char kVisibleGpusVariable[] = "CUDA_VISIBLE_DEVICES";

// The devices of GPUs in the folder `devices`, in the order of their numbers:
// "nvidia4", "nvidia5". None if it cannot be read.
std::vector<std::string> GpuNodes(const std::string& devices = "/dev");

// The entries of a setting of CUDA_VISIBLE_DEVICES. None if it hides all GPUs:
// "", "-1", or "NoDevFiles", which Slurm sets for a job without any.
std::vector<std::string> NamedGpus(absl::string_view setting);

// The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them:
// those that it does name, or without it all whose devices are in `devices`. In
// a container these keep the machine's numbers (/dev/nvidia5 alone), while CUDA
// counts those that are there from 0, and so do the names.
std::vector<std::string> VisibleGpus(const std::string& devices = "/dev");

// An environment's "CUDA_VISIBLE_DEVICES=2,3".
std::string GpuSetting(const std::vector<std::string>& gpus);

// Deals GPUs out to processes: each its own as long as there are some, then
// from the first again.
class GpuDealer {
 public:
  explicit GpuDealer(std::vector<std::string> gpus) : gpus_(std::move(gpus)) {}

  // `count` different ones, or all if there are fewer.
  std::vector<std::string> Deal(size_t count);

 private:
  const std::vector<std::string> gpus_;
  size_t next_ = 0;
};

}  // namespace dapd
