#include "common/model/spec/gpu_shares.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/base/visible_gpus.h"
#include "common/config/preset_terms.h"
#include "common/gpus/gpu_report.h"

namespace dapd {
namespace {

// The need of one process on one GPU.
struct Need {
  std::string name;
  double bytes = 0;
  int64_t even_parts = 0;  // it plans with 1 of these parts; 0: all
};

Need NeedOf(const std::string& process,
            const RoleMemory& plan,
            const Gpu& gpu,
            int64_t sharing) {
  const double part =
      static_cast<double>(gpu.total_bytes) / static_cast<double>(sharing);
  return {
      process, plan.Least() + plan.holes * part, plan.holes > 0 ? sharing : 0};
}

// Returns the head of a message: the sum of `needs`, and the GPU that they are
// for.
std::string SumOf(const std::vector<Need>& needs, const Gpu& gpu) {
  double sum = 0;
  for (const Need& need : needs) sum += need.bytes;
  const std::string parts =
      absl::StrJoin(needs, ", ", [](std::string* out, const Need& need) {
        absl::StrAppend(
            out, absl::StrFormat("%s %.1f", need.name, need.bytes / kGiB));
      });
  return absl::StrFormat(
      "the plan needs at least %.1f GiB (%s) on one GPU, but %s (%s) has %.1f "
      "GiB",
      sum / kGiB,
      parts,
      Printable(gpu.name),
      gpu.uuid,
      static_cast<double>(gpu.total_bytes) / kGiB);
}

bool Fit(const std::vector<Need>& needs, int64_t room) {
  double sum = 0;
  for (const Need& need : needs) sum += need.bytes;
  return sum <= static_cast<double>(room);
}

absl::Status CheckTotal(const std::vector<Need>& needs, const Gpu& gpu) {
  if (Fit(needs, gpu.total_bytes)) return absl::OkStatus();
  return ConfigError(absl::StrCat(
      SumOf(needs, gpu),
      ". dapd check prints what takes it. Lower "
      "trainer.activation_memory_mib, trainer.pack_tokens, "
      "teacher.prefix_memory_mib or rollout.slots, set trainer.shard_base=true "
      "with more trainer.ranks, raise rollout.tensor_parallel, or choose other "
      "GPUs with CUDA_VISIBLE_DEVICES"));
}

absl::Status CheckFree(const std::vector<Need>& needs, const Gpu& gpu) {
  if (!gpu.free_bytes.has_value() || Fit(needs, *gpu.free_bytes)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s, of which %.1f GiB are free: another process holds the rest "
      "(nvidia-smi shows which). End that process, choose other GPUs with "
      "CUDA_VISIBLE_DEVICES, or lower what dapd check says is needed",
      SumOf(needs, gpu),
      static_cast<double>(*gpu.free_bytes) / kGiB));
}

// Does not check the sum, because a process that divides a part fills it.
absl::Status CheckEvenParts(const std::vector<Need>& needs, const Gpu& gpu) {
  for (const Need& need : needs) {
    if (need.even_parts == 0) continue;
    const double part = static_cast<double>(gpu.total_bytes) /
                        static_cast<double>(need.even_parts);
    if (need.bytes <= part) continue;
    return ConfigError(absl::StrFormat(
        "the %s needs at least %.1f GiB on one GPU, but its equal part of %s "
        "(%s), which %d processes share, is %.1f of %.1f GiB. dapd check "
        "prints what takes it. Lower trainer.pack_tokens, set "
        "trainer.shard_base=true with more trainer.ranks, or use more GPUs",
        need.name,
        need.bytes / kGiB,
        Printable(gpu.name),
        gpu.uuid,
        need.even_parts,
        part / kGiB,
        static_cast<double>(gpu.total_bytes) / kGiB));
  }
  return absl::OkStatus();
}

// Returns how many ranks of a process are on each of its GPUs.
int64_t RanksOnEachGpu(const LocalProcess& process) {
  const size_t gpus = std::max<size_t>(1, process.gpus.size());
  return static_cast<int64_t>((process.num_gpus + gpus - 1) / gpus);
}

// NCCL does not join two processes on one GPU, unless it is told to.
absl::Status CheckRanks(const std::vector<LocalProcess>& processes,
                        size_t num_gpus) {
  if (RanksMayShareAGpu()) return absl::OkStatus();
  const auto ranks = static_cast<size_t>(
      std::ranges::count_if(processes, [](const LocalProcess& process) {
        return process.role == &MemoryPlan::trainer;
      }));
  if (ranks > num_gpus) {
    return ConfigError(absl::StrCat("trainer.ranks is ",
                                    ranks,
                                    ", but the number of GPUs here is ",
                                    num_gpus,
                                    "; each rank needs its own: lower "
                                    "trainer.ranks, or use more GPUs"));
  }
  for (const LocalProcess& process : processes) {
    if (process.num_gpus <= num_gpus) continue;
    return ConfigError(absl::StrCat("rollout.tensor_parallel is ",
                                    process.num_gpus,
                                    ", but the number of GPUs here is ",
                                    num_gpus,
                                    "; each process of ",
                                    process.name,
                                    " needs its own: lower it, or use more "
                                    "GPUs"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FurtherWorkerName(const std::string& teacher, int64_t index) {
  return absl::StrCat("teacher-", teacher, "-", index);
}

std::vector<LocalProcess> DealGpus(const Config& config,
                                   const std::vector<std::string>& gpus) {
  GpuDealer dealer(gpus);
  std::vector<LocalProcess> processes;
  const auto add = [&](const std::string& name,
                       RoleMemory MemoryPlan::*role,
                       int64_t num_gpus) {
    const auto count = static_cast<size_t>(num_gpus);
    processes.push_back({name, role, dealer.Deal(count), count});
  };
  for (int64_t i = 0; i < config.trainer.ranks; ++i) {
    add(i == 0 ? "trainer" : absl::StrCat("trainer-", i),
        &MemoryPlan::trainer,
        1);
  }
  const int64_t rollouts =
      AsksRolloutWorkers(config) ? config.run.rollout_workers : 0;
  for (int64_t i = 0; i < rollouts; ++i) {
    add(absl::StrCat("rollout-", i),
        &MemoryPlan::rollout,
        config.rollout.tensor_parallel);
  }
  const int64_t teachers =
      AsksTeachers(config) ? config.run.teacher_workers : 0;
  for (int64_t i = 0; i < teachers; ++i) {
    add(absl::StrCat("teacher-", i), &MemoryPlan::teacher, 1);
  }
  for (const TeacherModel& teacher : TeachersAsked(config)) {
    for (int64_t i = 0; i < teacher.workers; ++i) {
      add(FurtherWorkerName(teacher.name, i), &MemoryPlan::teacher, 1);
      processes.back().teacher = teacher.name;
    }
  }
  return processes;
}

int64_t ProcessesOnGpusOf(const LocalProcess& process,
                          const std::vector<LocalProcess>& processes) {
  int64_t most = 0;
  for (const std::string& gpu : process.gpus) {
    int64_t sharing = 0;
    for (const LocalProcess& other : processes) {
      if (std::ranges::count(other.gpus, gpu) == 0) continue;
      sharing += RanksOnEachGpu(other);
    }
    most = std::max(most, sharing);
  }
  return most;
}

absl::Status CheckShares(const std::vector<LocalProcess>& processes,
                         const MemoryPlan& plan,
                         const std::vector<std::string>& names,
                         const std::vector<Gpu>& gpus) {
  if (names.empty() || gpus.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckRanks(processes, names.size()));
  const size_t num_gpus = std::min(names.size(), gpus.size());
  std::vector<std::vector<Need>> needs(num_gpus);
  for (size_t i = 0; i < num_gpus; ++i) {
    for (const LocalProcess& process : processes) {
      if (std::ranges::count(process.gpus, names[i]) == 0) continue;
      const Need need = NeedOf(process.name,
                               process.PlanOf(plan),
                               gpus[i],
                               ProcessesOnGpusOf(process, processes));
      needs[i].insert(
          needs[i].end(), static_cast<size_t>(RanksOnEachGpu(process)), need);
    }
    RETURN_IF_ERROR(CheckTotal(needs[i], gpus[i]));
    RETURN_IF_ERROR(CheckEvenParts(needs[i], gpus[i]));
  }
  // This is checked last, because only a lack of free memory may end by
  // waiting.
  for (size_t i = 0; i < num_gpus; ++i) {
    RETURN_IF_ERROR(CheckFree(needs[i], gpus[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckOwnGpu(const std::string& process, const RoleMemory& plan) {
  const GpuReport report = FindGpus();
  if (report.gpus.empty()) return absl::OkStatus();
  const std::vector<Need> needs = {{process, plan.Least()}};
  const Gpu& gpu = report.gpus.front();
  RETURN_IF_ERROR(CheckTotal(needs, gpu));
  return CheckFree(needs, gpu);
}

}  // namespace dapd
