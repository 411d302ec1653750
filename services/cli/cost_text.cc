#include "services/cli/cost_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/gpus/gpu.h"

namespace dapd {
namespace {

HardwareRates RatesOf(const GivenRates& given, const Config& config) {
  if (given.teraflops == 0) return AssumedRates(config);
  return {.flops = given.teraflops * 1e12,
          .memory_bytes = given.memory_gigabytes * 1e9,
          .network_bytes = given.network_gigabytes * 1e9};
}

}  // namespace

std::vector<std::string> MemoryText(const Config& config,
                                    const ModelConfig& model,
                                    const MemoryPlan& plan) {
  std::vector<std::string> lines;
  std::vector<std::pair<std::string, const RoleMemory&>> roles = {
      {"rollout", plan.rollout},
      {"teacher", plan.teacher},
      {"trainer", plan.trainer}};
  for (const auto& [name, memory] : plan.teachers) {
    roles.emplace_back(absl::StrCat("teacher ", name), memory);
  }
  for (const auto& [role, memory] : roles) {
    std::string line = absl::StrFormat(
        "%-16s %.2f GiB a process, at most:", role, memory.Total() / kGiB);
    const char* separator = " ";
    for (const MemoryItem& item : memory.items) {
      absl::StrAppend(
          &line,
          absl::StrFormat(
              "%s%s %.2f", separator, item.what, item.bytes / kGiB));
      separator = ", ";
    }
    lines.push_back(line);
  }
  for (const int64_t ranks : {2, 4, 8}) {
    if (model.num_kv_heads % ranks != 0) break;
    lines.push_back(
        absl::StrFormat("%-16s %.2f GiB a rank if %d split every layer",
                        "  base",
                        BaseBytesOfRank(config, model, ranks) / kGiB,
                        ranks));
  }
  return lines;
}

std::vector<std::string> StepCostText(const Config& config,
                                      const ModelConfig& model,
                                      const SampleLengths& lengths,
                                      const GivenRates& given,
                                      const FurtherTeachers& teachers) {
  std::vector<std::string> lines;
  const ViewLengths& answer = lengths.at("none_rollout");
  std::string views =
      absl::StrFormat("%-16s %.4g tokens of prompt, %.4g of answer; views",
                      "samples",
                      answer.tokens - answer.scored,
                      answer.scored);
  for (const auto& [name, view] : lengths) {
    absl::StrAppend(&views, absl::StrFormat(" %s %.4g", name, view.tokens));
  }
  lines.push_back(views);
  for (const bool snapshot_is_base : {true, false}) {
    const StepWork work =
        CountStepWork(config, model, lengths, snapshot_is_base, teachers);
    lines.push_back(absl::StrFormat(
        "%-16s %.4g TFLOP: trainer %.4g for %.0f tokens, teachers "
        "%.4g for %.0f; head rows %.0f",
        snapshot_is_base ? "step at first" : "step later",
        (work.trainer_flops + work.teacher_flops + work.further_flops) / 1e12,
        work.trainer_flops / 1e12,
        work.live_tokens,
        (work.teacher_flops + work.further_flops) / 1e12,
        work.teacher_tokens,
        work.head_rows));
    if (given.teraflops == 0) continue;
    const StepSeconds seconds =
        PredictStep(config, work, RatesOf(given, config));
    lines.push_back(
        absl::StrFormat("%-16s %.4g s: rollout %.4g, teachers %.4g, "
                        "trainer %.4g, network %.4g",
                        "  one by one",
                        seconds.Serial(),
                        seconds.rollout,
                        seconds.teacher,
                        seconds.trainer,
                        seconds.network));
  }
  const StepWork work = CountStepWork(config, model, lengths, false, teachers);
  constexpr double kMiB = 1 << 20;
  lines.push_back(
      absl::StrFormat("%-16s MiB a step: scores %.1f, adapter %.1f a worker, "
                      "gradients %.1f a rank",
                      "wire",
                      work.payload_bytes / kMiB,
                      work.adapter_bytes / kMiB,
                      work.reduce_bytes / kMiB));
  lines.push_back(
      absl::StrFormat("%-16s %.0f steps a worker, %.2f GiB read in each",
                      "decoding",
                      work.decode_steps,
                      work.decode_bytes / (1 << 30)));
  return lines;
}

absl::StatusOr<std::string> SplitText(const Config& config,
                                      const ModelConfig& model,
                                      const SampleLengths& lengths,
                                      const SplitDevices& devices,
                                      const GivenRates& given_rates,
                                      const GivenSplit& given,
                                      const FurtherTeachers& teachers) {
  const HardwareRates rates = RatesOf(given_rates, config);
  const auto split =
      RecommendSplit(config, model, lengths, devices, rates, given, teachers);
  if (!split.ok()) {
    return ConfigError(
        absl::StrCat("--gpus: ", std::string(split.status().message())));
  }
  // Each task of a Slurm job has one device unless this says otherwise.
  const int64_t of_worker = split->tensor_parallel;
  const std::string of_workers =
      of_worker > 1 ? absl::StrCat("; ", of_worker, " devices a rollout worker")
                    : "";
  const int64_t further = NumFurtherWorkers(config);
  const std::string of_further =
      further > 0 ? absl::StrCat("; ", further, " more for further teachers")
                  : "";
  return absl::StrFormat(
      "%-16s of %d: ranks %d, teachers %d, rollouts %d; %.4g s a step one "
      "by one at %.4g TFLOP/s, %.4g GB/s and %.4g GB/s of network; %.2f "
      "GiB a rank%s%s",
      "split",
      devices.count,
      split->ranks,
      split->teachers,
      split->rollouts,
      split->seconds,
      rates.flops / 1e12,
      rates.memory_bytes / 1e9,
      rates.network_bytes / 1e9,
      PlanMemory(WithSplit(config, *split), model, teachers).trainer.Total() /
          (1 << 30),
      of_further,
      of_workers);
}

}  // namespace dapd
