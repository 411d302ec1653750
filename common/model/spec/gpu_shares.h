// Which GPU each process of a `dapd run` gets, and whether those that share one
// fit on it, by the arithmetic of memory_plan.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/config/config.h"
#include "common/gpus/gpu.h"
#include "common/model/spec/memory_plan.h"

namespace dapd {

struct LocalProcess {
  std::string name;               // "trainer", "trainer-1", "rollout-0"
  RoleMemory MemoryPlan::*role;   // what of a plan is its
  std::vector<std::string> gpus;  // some of those that were dealt
  size_t num_gpus = 1;            // that it needs
};

// The processes that `dapd run` starts, with `gpus` (VisibleGpus) dealt out to
// them: each gets its own as long as there are some, then they share. Ranks
// come first, no two of which may share one, then rollout workers with
// rollout.tensor_parallel each, then teachers.
std::vector<LocalProcess> DealGpus(const Config& config,
                                   const std::vector<std::string>& gpus);

// How many of `processes`, of which `process` is one, compute on its GPU, or on
// that of its GPUs that has the most: the run.gpu_processes that it plans with.
// 0 where it was dealt none.
int64_t ProcessesOnGpusOf(const LocalProcess& process,
                          const std::vector<LocalProcess>& processes);

// Whether each of `gpus`, the ones that `names` stands for in the same order,
// has what `processes` need of it at the least, and whether a process that
// divides memory by itself (RoleMemory::holes) has enough in an even part; also
// whether ranks, of the trainer or of a rollout worker, have a GPU each. A
// CONFIG error with what is needed and what the GPU has. RESOURCE_EXHAUSTED,
// which may pass (gpu_memory_wait.h), where a GPU has enough, but too little of
// it is free: another process holds the rest.
absl::Status CheckShares(const std::vector<LocalProcess>& processes,
                         const MemoryPlan& plan,
                         const std::vector<std::string>& names,
                         const std::vector<Gpu>& gpus);

// The same of a process by itself, which computes on the first GPU that it
// sees. OK where no GPU is to be seen.
absl::Status CheckOwnGpu(const std::string& process, const RoleMemory& plan);

}  // namespace dapd
