// Names of GPUs, without CUDA, for a program that starts other programs on
// them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

// Names GPUs by their numbers or ids, with commas between them.
inline constexpr char kVisibleGpusVariable[] = "CUDA_VISIBLE_DEVICES";

// Returns the devices of GPUs in the folder `devices`, in the order of their
// numbers: "nvidia4", "nvidia5"; none if it cannot be read.
std::vector<std::string> GpuNodes(const std::string& devices = "/dev");

// Returns the entries of a value of CUDA_VISIBLE_DEVICES; none if the value
// hides all GPUs: "", "-1", or "NoDevFiles", which Slurm sets for a job without
// GPUs.
std::vector<std::string> NamedGpus(absl::string_view setting);

// Returns the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names
// them: the GPUs in that variable or, without it, all GPUs with a device in
// `devices`. In a container the devices keep the numbers of the machine
// (/dev/nvidia5 alone), but CUDA counts the present GPUs from 0, and so do
// these names.
std::vector<std::string> VisibleGpus(const std::string& devices = "/dev");

// Returns whether NCCL was told that ranks may share a GPU, which it otherwise
// refuses: NCCL_MULTI_RANK_GPU_ENABLE=1, which NCCL knows from 2.30.3 on. It is
// for tests of several ranks on a machine with one GPU (docs/gpu.md).
bool RanksMayShareAGpu();

// Returns the entry "CUDA_VISIBLE_DEVICES=2,3" of an environment.
std::string GpuSetting(const std::vector<std::string>& gpus);

// Deals GPUs to processes: each process gets its own GPUs until none is left,
// then dealing begins again with the first GPU.
class GpuDealer {
 public:
  explicit GpuDealer(std::vector<std::string> gpus) : gpus_(std::move(gpus)) {}

  // Returns `count` different GPUs, or all of them if there are fewer.
  std::vector<std::string> Deal(size_t count);

 private:
  const std::vector<std::string> gpus_;
  size_t next_ = 0;
};

}  // namespace dapd
