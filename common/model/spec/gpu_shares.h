// Decides which GPU each process of a `dapd run` gets, and whether processes
// that share a GPU fit on it, by the arithmetic of memory_plan.h.
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
  RoleMemory MemoryPlan::*role;   // its part of a plan
  std::vector<std::string> gpus;  // a subset of the dealt GPUs
  size_t num_gpus = 1;            // the number it needs
  std::string teacher = {};       // a further teacher: its part instead

  const RoleMemory& PlanOf(const MemoryPlan& plan) const {
    return teacher.empty() ? plan.*role : plan.teachers.at(teacher);
  }
};

// Returns the name of a process of a further teacher: "teacher-big-0".
std::string FurtherWorkerName(const std::string& teacher, int64_t index);

// Returns the processes that `dapd run` starts, with `gpus` (VisibleGpus) dealt
// out to them: each gets its own GPU while there are any left, then they share.
// Trainer ranks come first, each on a GPU of its own, then rollout workers with
// rollout.tensor_parallel GPUs each, then teachers, and last the workers of
// further teachers.
std::vector<LocalProcess> DealGpus(const Config& config,
                                   const std::vector<std::string>& gpus);

// Returns how many processes compute on the GPU of `process`, itself included:
// the run.gpu_processes that it plans with. If it has several GPUs, the fullest
// counts. A worker whose ranks share GPUs (RanksMayShareAGpu) counts with each
// of its ranks. 0 if it was dealt none.
int64_t ProcessesOnGpusOf(const LocalProcess& process,
                          const std::vector<LocalProcess>& processes);

// Checks that each of `gpus`, in the order of `names`, has the least memory
// that its `processes` need; that a process that divides memory by itself
// (RoleMemory::holes) has enough in an even part; and that ranks, of the
// trainer or of a rollout worker, have a GPU each. Returns a CONFIG error with
// the memory that is needed and the memory of the GPU. Returns
// RESOURCE_EXHAUSTED, which may pass (gpu_memory_wait.h), if a GPU is large
// enough but another process holds too much of it.
absl::Status CheckShares(const std::vector<LocalProcess>& processes,
                         const MemoryPlan& plan,
                         const std::vector<std::string>& names,
                         const std::vector<Gpu>& gpus);

// Checks a process by itself, like CheckShares, on the first GPU that it sees.
// Returns OK if it sees none.
absl::Status CheckOwnGpu(const std::string& process, const RoleMemory& plan);

}  // namespace dapd
