// dapd check: is the configuration sound, does what it names exist, and what
// will the run need?

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/config_keys.h"
#include "common/config/load_config.h"
#include "common/config/preset_terms.h"
#include "common/config/validate_config.h"
#include "common/data/dataset.h"
#include "common/data/expected_answer.h"
#include "common/data/sample_rows.h"
#include "common/data/text_pipeline.h"
#include "common/data/view_limits.h"
#include "common/gpus/cuda_backend.h"
#include "common/gpus/gpu_report.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"
#include "common/model/spec/role_split.h"
#include "common/model/spec/step_cost.h"
#include "common/notify/webhook.h"
#include "common/rpc/pool/address_file.h"
#include "services/cli/command.h"
#include "services/cli/device_text.h"
#include "services/cli/pass_limits_text.h"

namespace dapd {
namespace {

struct CheckOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string samples;  // empty: the longest that the configuration allows
  // Of one device; a time is only predicted if all three are given.
  double teraflops = 0;
  double memory_gigabytes = 0;
  double network_gigabytes = 0;
  int64_t gpus = 0;    // to recommend a split of; 0: none
  double gpu_gib = 0;  // memory of each; 0: not known
};

// As given; without, those of docs/scale.md's table, or of a core where the
// model is computed on CPUs. The split depends on their proportions only.
HardwareRates RatesOf(const CheckOptions& options, const Config& config) {
  if (options.teraflops > 0) {
    return {.flops = options.teraflops * 1e12,
            .memory_bytes = options.memory_gigabytes * 1e9,
            .network_bytes = options.network_gigabytes * 1e9};
  }
  if (config.model.device == "cpu") {
    return {.flops = 0.1e12, .memory_bytes = 10e9, .network_bytes = 1e9};
  }
  return {.flops = 400e12, .memory_bytes = 2.5e12, .network_bytes = 10e9};
}

// One line, which deploy/slurm/dapd.sbatch reads.
absl::Status PrintSplit(const Config& config,
                        const ModelConfig& model,
                        const SampleLengths& lengths,
                        const CheckOptions& options) {
  if (options.gpus == 0) return absl::OkStatus();
  const HardwareRates rates = RatesOf(options, config);
  const auto split =
      RecommendSplit(config, model, lengths, options.gpus, rates);
  if (!split.ok()) {
    return ConfigError(
        absl::StrCat("--gpus: ", std::string(split.status().message())));
  }
  std::puts(
      absl::StrFormat(
          "%-16s of %d: ranks %d, teachers %d, rollouts %d; %.4g s a step one "
          "by one at %.4g TFLOP/s, %.4g GB/s and %.4g GB/s of network; %.2f "
          "GiB a rank",
          "split",
          options.gpus,
          split->ranks,
          split->teachers,
          split->rollouts,
          split->seconds,
          rates.flops / 1e12,
          rates.memory_bytes / 1e9,
          rates.network_bytes / 1e9,
          PlanMemory(WithSplit(config, *split), model).trainer.Total() /
              (1 << 30))
          .c_str());
  return absl::OkStatus();
}

void PrintMemory(const Config& config,
                 const ModelConfig& model,
                 const MemoryPlan& plan) {
  constexpr double kGiB = 1 << 30;
  for (const auto& [role, memory] :
       {std::pair<const char*, const RoleMemory&>{"rollout", plan.rollout},
        {"teacher", plan.teacher},
        {"trainer", plan.trainer}}) {
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
    std::puts(line.c_str());
  }
  for (const int64_t ranks : {2, 4, 8}) {
    if (model.num_kv_heads % ranks != 0) break;
    std::puts(absl::StrFormat("%-16s %.2f GiB a rank if %d split every layer",
                              "  base",
                              BaseBytesOfRank(config, model, ranks) / kGiB,
                              ranks)
                  .c_str());
  }
}

// Of this machine, which need not be where the run will be: nothing of it is an
// error.
void PrintDevices(const Config& config, const MemoryPlan& plan) {
  if (config.model.device == "cpu") return;
  for (const std::string& line :
       DeviceText(config, plan, FindGpus(), CudaBackendPath().ok())) {
    std::puts(line.c_str());
  }
}

// What differs from a forward KL over the vocabulary.
std::string DescribeSpecial(const Term& term) {
  std::string text;
  if (term.divergence.kind != DivergenceKind::kForwardKl) {
    absl::StrAppend(&text, ", ", DivergenceName(term.divergence.kind));
  }
  if (term.support.kind != SupportKind::kFull) {
    absl::StrAppend(&text,
                    ", ",
                    SupportName(term.support.kind),
                    " ",
                    term.support.k,
                    term.support.tail ? " with tail" : "");
  }
  if (term.reduction != Reduction::kMicroToken) {
    absl::StrAppend(&text, ", ", ReductionName(term.reduction));
  }
  if (term.skip_tokens > 0) {
    absl::StrAppend(&text, ", without the first ", term.skip_tokens, " tokens");
  }
  if (term.importance != Importance::kNone) {
    absl::StrAppend(&text,
                    ", importance by ",
                    ImportanceName(term.importance),
                    " to ",
                    term.importance_cap);
  }
  return text;
}

std::string DescribeReference(const RolloutSection& rollout) {
  if (rollout.source == "dual") return "a second answer";
  if (rollout.source == "verified") {
    return rollout.unverified == "skip"
               ? "the first right one of four further answers, or none"
               : "the first right one of four further answers, or the first";
  }
  return "the data's solution";
}

absl::StatusOr<SampleLengths> MeanLengths(const std::vector<SampleRow>& rows,
                                          const ViewBuilder& builder) {
  SampleLengths mean;
  const double share = 1.0 / static_cast<double>(rows.size());
  for (const SampleRow& row : rows) {
    ASSIGN_OR_RETURN(const Views views, BuildViewsOf(builder, row.sample));
    for (int i = 0; i < kNumViews; ++i) {
      const View& view = views[static_cast<size_t>(i)];
      const auto name = static_cast<ViewName>(i);
      if (view.input_ids.empty() && !IsAlwaysBuilt(name)) continue;
      const auto tokens = static_cast<double>(view.input_ids.size());
      const auto scored = static_cast<double>(view.scored_count);
      ViewLengths& lengths = mean[ViewNameString(name)];
      lengths.tokens += share * tokens;
      lengths.squares += share * tokens * tokens;
      lengths.scored += share * scored;
    }
  }
  return mean;
}

// What a step computes and sends, before and after the first refresh of the
// snapshot, and how long that takes at the given rates.
void PrintStepCost(const Config& config,
                   const ModelConfig& model,
                   const SampleLengths& lengths,
                   const CheckOptions& options) {
  const ViewLengths& answer = lengths.at("none_rollout");
  std::string views =
      absl::StrFormat("%-16s %.4g tokens of prompt, %.4g of answer; views",
                      "samples",
                      answer.tokens - answer.scored,
                      answer.scored);
  for (const auto& [name, view] : lengths) {
    absl::StrAppend(&views, absl::StrFormat(" %s %.4g", name, view.tokens));
  }
  std::puts(views.c_str());
  for (const bool snapshot_is_base : {true, false}) {
    const StepWork work =
        CountStepWork(config, model, lengths, snapshot_is_base);
    std::puts(absl::StrFormat(
                  "%-16s %.4g TFLOP: trainer %.4g for %.0f tokens, teachers "
                  "%.4g for %.0f; head rows %.0f",
                  snapshot_is_base ? "step at first" : "step later",
                  (work.trainer_flops + work.teacher_flops) / 1e12,
                  work.trainer_flops / 1e12,
                  work.live_tokens,
                  work.teacher_flops / 1e12,
                  work.teacher_tokens,
                  work.head_rows)
                  .c_str());
    if (options.teraflops == 0) continue;
    const StepSeconds seconds =
        PredictStep(config, work, RatesOf(options, config));
    std::puts(absl::StrFormat("%-16s %.4g s: rollout %.4g, teachers %.4g, "
                              "trainer %.4g, network %.4g",
                              "  one by one",
                              seconds.Serial(),
                              seconds.rollout,
                              seconds.teacher,
                              seconds.trainer,
                              seconds.network)
                  .c_str());
  }
  const StepWork work = CountStepWork(config, model, lengths, false);
  constexpr double kMiB = 1 << 20;
  std::puts(
      absl::StrFormat("%-16s MiB a step: scores %.1f, adapter %.1f a worker, "
                      "gradients %.1f a rank",
                      "wire",
                      work.payload_bytes / kMiB,
                      work.adapter_bytes / kMiB,
                      work.reduce_bytes / kMiB)
          .c_str());
  std::puts(absl::StrFormat("%-16s %.0f steps a worker, %.2f GiB read in each",
                            "decoding",
                            work.decode_steps,
                            work.decode_bytes / (1 << 30))
                .c_str());
}

// `measure`: what is trained has to fit, see ApplyViewLimits.
absl::Status CheckDataset(
    const char* key,
    const std::string& path,
    const DataSection& section,
    const std::function<absl::Status(Dataset*)>& measure = nullptr) {
  if (path.empty()) {
    std::puts(absl::StrFormat("%-16s none", key).c_str());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Dataset data,
                   ReadDataset(path, MakeDatasetOptions(section)));
  if (measure) RETURN_IF_ERROR(measure(&data));
  std::puts(absl::StrFormat("%-16s %s: %d problems, %d rows skipped, digest %s",
                            key,
                            path,
                            data.problems.size(),
                            data.skipped_rows,
                            data.digest.substr(0, 16))
                .c_str());
  return absl::OkStatus();
}

// Whether the model's layers can be split as the configuration has it.
absl::Status CheckSplits(const Config& config, const ModelConfig& model) {
  for (const auto& [key, ranks] :
       {std::pair{"rollout.tensor_parallel", config.rollout.tensor_parallel},
        std::pair{"trainer.shard_base",
                  config.trainer.shard_base ? config.trainer.ranks : 1}}) {
    const absl::Status status = CheckSplit(model, ranks);
    if (!status.ok()) {
      return ConfigError(
          absl::StrCat(key, ": ", std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

// The preset, and which other keys have its values.
void PrintPreset(const LoadedConfig& loaded) {
  const std::string& preset = loaded.config.objective.preset;
  std::string line = absl::StrFormat("%-16s %s", "preset", preset);
  if (!loaded.config.objective.terms.empty()) {
    absl::StrAppend(&line, "; objective.terms replace its terms");
  }
  std::puts(line.c_str());
  Config config = loaded.config;
  for (const ConfigKey& key : ConfigKeys(config)) {
    if (loaded.origins.at(key.name) != "preset") continue;
    std::puts(absl::StrFormat("  %s: %s", key.name, FormatValue(key)).c_str());
  }
  if (!AsksRolloutWorkers(config)) std::puts("  no rollout workers are needed");
  if (!AsksTeachers(config)) std::puts("  no teachers are needed");
}

// A file of workers that is there has to be one; it may come later.
absl::Status CheckAddressFiles(const Config& config) {
  for (const auto& [key, addresses] :
       {std::pair{"rollout.addresses", &config.rollout.addresses},
        std::pair{"teacher.addresses", &config.teacher.addresses}}) {
    for (const std::string& address : *addresses) {
      const auto path = AddressFilePath(address);
      if (!path.has_value()) continue;
      const auto workers = ReadAddressFile(*path);
      if (!workers.ok() && !absl::IsNotFound(workers.status())) {
        return ConfigError(
            absl::StrCat(key, ": ", std::string(workers.status().message())));
      }
      std::puts(
          Printable(
              absl::StrCat(
                  key,
                  ": ",
                  *path,
                  workers.ok()
                      ? absl::StrCat(" names ", workers->size(), " workers")
                      : std::string(" is not there; a run waits for it")))
              .c_str());
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const CheckOptions& options) {
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  const Config& config = loaded.config;
  ASSIGN_OR_RETURN(const std::string folder,
                   FindModelFolder(config.model.path));
  RETURN_IF_ERROR(BaseModelName(config.model.path, config.model.name).status());
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(folder));
  RETURN_IF_ERROR(CheckSplits(config, model));
  RETURN_IF_ERROR(CheckAddressFiles(config));
  ASSIGN_OR_RETURN(
      const TextPipeline text,
      LoadTextPipeline(
          folder, MakeViewOptions(config), model.eos_token_ids.front()));
  RETURN_IF_ERROR(text.views->RolloutPrompt("1 + 1?").status());
  const MemoryPlan plan = PlanMemory(config, model);
  std::puts(absl::StrFormat(
                "%-16s %s: %s, %d layers, hidden %d, %d parameters, context %d",
                "model",
                folder,
                model.model_type,
                model.num_layers,
                model.hidden_size,
                model.NumParameters(),
                model.max_positions)
                .c_str());
  std::puts(absl::StrFormat("%-16s rank %d, alpha %g: %d parameters",
                            "adapter",
                            config.lora.rank,
                            config.lora.alpha,
                            plan.lora_parameters)
                .c_str());
  if (!config.lora.start_from.empty()) {
    ASSIGN_OR_RETURN(const std::string start,
                     FindAdapterFolder(config.lora.start_from));
    RETURN_IF_ERROR(CheckStartAdapter(start, config.lora));
    std::puts(absl::StrFormat("%-16s from %s", "", start).c_str());
  }
  RETURN_IF_ERROR(
      CheckDataset("data", config.data.path, config.data, [&](Dataset* data) {
        RETURN_IF_ERROR(ApplyAnswerRule(config, data));
        return ApplyViewLimits(config, model.max_positions, text, data);
      }));
  RETURN_IF_ERROR(
      CheckDataset("held out", config.evaluation.path, config.data));
  if (!config.run.notify_url.empty()) {
    RETURN_IF_ERROR(LoadWebhook(config.run).status());
  }
  std::puts(absl::StrFormat(
                "%-16s %d of batch %d, micro-batch %d; rate %g falling to zero "
                "over %d; snapshot every %d",
                "steps",
                config.trainer.steps,
                config.trainer.batch_size,
                config.trainer.micro_batch_size,
                config.trainer.learning_rate,
                config.trainer.schedule_steps,
                config.teacher.snapshot_interval)
                .c_str());
  PrintPreset(loaded);
  std::puts(
      absl::StrFormat("%-16s %d of %d problems a step; reference: %s",
                      "answers",
                      config.rollout.group_size,
                      config.trainer.batch_size / config.rollout.group_size,
                      DescribeReference(config.rollout))
          .c_str());
  std::puts("terms            student <- target (weights), clip, weight");
  double sum = 0.0;
  for (const Term& term : ExpandTerms(config.objective)) {
    std::puts(absl::StrFormat("  %-21s %s <- %s, %g, %.6g%s",
                              term.name,
                              ViewNameString(term.student),
                              Describe(term.target),
                              term.divergence.clip,
                              term.weight,
                              DescribeSpecial(term))
                  .c_str());
    sum += term.weight;
  }
  std::puts(absl::StrFormat("  sum of weights      %.6g", sum).c_str());
  PrintMemory(config, model, plan);
  ASSIGN_OR_RETURN(const std::string passes,
                   PassLimitsText(config, model, options.gpu_gib));
  std::puts(absl::StrFormat("%-16s %s", "passes", passes).c_str());
  PrintDevices(config, plan);
  SampleLengths lengths = LongestSamples(config);
  if (!options.samples.empty()) {
    ASSIGN_OR_RETURN(std::vector<SampleRow> rows,
                     ReadSampleRows(options.samples, model.vocab_size));
    RETURN_IF_ERROR(FillContexts(config, *text.views, &rows));
    ASSIGN_OR_RETURN(lengths, MeanLengths(rows, *text.views));
  }
  PrintStepCost(config, model, lengths, options);
  RETURN_IF_ERROR(PrintSplit(config, model, lengths, options));
  std::puts("the configuration is sound");
  return absl::OkStatus();
}

}  // namespace

void AddCheckCommand(Command& app) {
  auto options = std::make_shared<CheckOptions>();
  Command command =
      app.AddSubcommand("check", "Validate a configuration and print its plan");
  command.AddOption("config", options->config, "YAML configuration").Required();
  command
      .AddOption("--set", options->overrides, "key=value, overrides the file")
      .TakeAll();
  command.AddOption(
      "--samples",
      options->samples,
      "JSON Lines {id, problem, reference, rollout_ids}, as a run's samples/ "
      "holds them: plan for their mean lengths instead of the longest");
  CommandOption flops = command.AddOption(
      "--tflops", options->teraflops, "TFLOP/s of a device's matrix products");
  CommandOption memory =
      command.AddOption("--memory-gbs",
                        options->memory_gigabytes,
                        "GB/s at which a device reads its memory");
  CommandOption network = command.AddOption(
      "--network-gbs", options->network_gigabytes, "GB/s of a network link");
  command
      .AddOption("--gpus",
                 options->gpus,
                 "recommend how many of so many devices train, score and "
                 "sample")
      .Range(1, 4096);
  command
      .AddOption("--gpu-gib",
                 options->gpu_gib,
                 "GiB of a GPU's memory: plan the trainer's passes for it")
      .Positive();
  flops.Positive().Needs(memory).Needs(network);
  memory.Positive().Needs(flops).Needs(network);
  network.Positive().Needs(flops).Needs(memory);
  command.Does([options] { return Check(*options); });
}

}  // namespace dapd
