// dapd check: checks the configuration and the files that it names, and
// estimates the run's needs.

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/config/preset_terms.h"
#include "common/config/shipped_configs.h"
#include "common/config/validate_config.h"
#include "common/data/dataset.h"
#include "common/data/expected_answer.h"
#include "common/data/model_text.h"
#include "common/data/sample_rows.h"
#include "common/data/view_limits.h"
#include "common/gpus/cuda_backend.h"
#include "common/gpus/gpu.h"
#include "common/gpus/gpu_report.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/executor_support.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/gpu_model.h"
#include "common/model/spec/machine_split.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"
#include "common/model/spec/pass_memory.h"
#include "common/model/spec/step_cost.h"
#include "common/model/weights/adapter_check.h"
#include "common/notify/webhook.h"
#include "common/rpc/pool/address_file.h"
#include "common/security/certificate.h"
#include "common/security/role.h"
#include "common/security/security.h"
#include "services/cli/answer_memory_text.h"
#include "services/cli/command.h"
#include "services/cli/cost_text.h"
#include "services/cli/device_text.h"
#include "services/cli/objective_text.h"
#include "services/cli/output_text.h"
#include "services/cli/pass_limits_text.h"
#include "services/cli/row_text.h"
#include "services/cli/start_checks.h"

namespace dapd {
namespace {

struct CheckOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string samples;  // empty: the longest that the configuration allows
  GivenRates rates;
  int64_t gpus = 0;    // to split among the roles; 0: no split
  double gpu_gib = 0;  // memory of each; 0: unknown
};

void PrintLines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::puts(line.c_str());
}

// This machine's devices, and how `dapd run` would use them. The run may be
// meant for another machine, so nothing of this is an error.
struct Here {
  GpuReport report;
  bool has_backend = false;
  absl::StatusOr<MachineSplit> split;

  const Config& ConfigOr(const Config& other) const {
    return split.ok() ? split->config : other;
  }
};

Here LookAround(const LoadedConfig& loaded, const ModelText& base) {
  Here here;
  if (loaded.config.model.device != DeviceChoice::kCpu) {
    here.report = FindGpus();
    here.has_backend = CudaBackendPath().ok();
  }
  const bool computes_on_gpus = here.report.usable.ok() && here.has_backend;
  if (computes_on_gpus) {
    here.split = SplitMachine(loaded,
                              BegunConfig(loaded.config.run),
                              base.model,
                              here.report,
                              base.teachers);
  } else {
    here.split = MachineSplit{.config = loaded.config,
                              .names = GpuNames(here.report),
                              .gpus = here.report.gpus};
  }
  return here;
}

void PrintDevices(const Here& here,
                  const ModelSection& section,
                  const ModelConfig& model,
                  const MemoryPlan& plan) {
  if (section.device == DeviceChoice::kCpu) return;
  PrintLines(DeviceText(here.split,
                        CheckGpuModel(section.precision, model),
                        plan,
                        here.report,
                        here.has_backend));
  if (!here.split.ok()) return;
  for (const std::string& warning : here.split->warnings) LogWarning(warning);
}

// Returns this machine's GPUs, as `dapd run` uses them.
GpuReport ReportOf(const Here& here) {
  GpuReport report = here.report;
  if (here.split.ok()) report.gpus = here.split->gpus;
  return report;
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

// Returns the data set's digest. `measure`: all of it must fit
// (common/data/view_limits.h). Prints the first row unless `text` is null.
absl::StatusOr<std::string> CheckDataset(
    const char* key,
    const std::string& path,
    const DatasetOptions& options,
    const TextPipeline* text,
    const std::function<absl::Status(Dataset*)>& measure) {
  if (path.empty()) {
    std::puts(absl::StrFormat("%-16s none", key).c_str());
    return std::string();
  }
  ASSIGN_OR_RETURN(Dataset data, ReadDataset(path, options));
  // A grader of the user's own gets the rows, and need not have answers.
  if (!options.needs_row_json) {
    WarnOfBadAnswers(path, "data.answer_column", data);
  }
  RETURN_IF_ERROR(measure(&data));
  std::puts(absl::StrFormat("%-16s %s: %d problems, %d rows skipped, digest %s",
                            key,
                            path,
                            data.problems.size(),
                            data.skipped_rows,
                            data.digest.substr(0, 16))
                .c_str());
  if (!options.teacher_column.empty()) {
    std::puts(RowTeachersText(data).c_str());
  }
  if (text != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                     RowText(data.problems.front(), *text));
    PrintLines(lines);
  }
  return data.digest;
}

// Checks that the model's layers can be split as configured.
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

// Returns the addresses of all workers, by key.
std::vector<std::pair<std::string, std::vector<std::string>>> AllAddresses(
    const Config& config) {
  std::vector<std::pair<std::string, std::vector<std::string>>> all = {
      {"rollout.addresses", config.rollout.addresses},
      {"teacher.addresses", config.teacher.addresses}};
  for (const TeacherModel& teacher : TeachersAsked(config)) {
    all.emplace_back(absl::StrCat("teachers: '", teacher.name, "': addresses"),
                     teacher.addresses);
  }
  return all;
}

// An existing file of workers must be valid; a missing one may come later.
absl::Status CheckAddressFiles(const Config& config) {
  for (const auto& [key, addresses] : AllAddresses(config)) {
    for (const std::string& address : addresses) {
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
                      : std::string(" does not exist yet; a run waits for it")))
              .c_str());
    }
  }
  return absl::OkStatus();
}

void PrintModel(const char* name,
                const std::string& folder,
                const ModelConfig& model) {
  std::puts(absl::StrFormat(
                "%-16s %s: %s, %d layers, hidden %d, %d parameters, context %d",
                name,
                folder,
                model.model_type,
                model.num_layers,
                model.hidden_size,
                model.NumParameters(),
                model.max_positions)
                .c_str());
}

void PrintModels(const ModelText& base) {
  PrintModel("model", base.folder, base.model);
  for (const FurtherTeacher& teacher : base.teachers) {
    PrintModel(absl::StrCat("teacher ", teacher.name()).c_str(),
               teacher.folder,
               teacher.model);
    if (teacher.adapter.empty()) continue;
    std::puts(
        absl::StrFormat("%-16s with the adapter in %s", "", teacher.adapter)
            .c_str());
  }
}

absl::Status CheckAdapter(const Config& config,
                          const ModelConfig& model,
                          int64_t parameters) {
  std::puts(absl::StrFormat("%-16s rank %d, alpha %g: %d parameters",
                            "adapter",
                            config.lora.rank,
                            config.lora.alpha,
                            parameters)
                .c_str());
  ASSIGN_OR_RETURN(const std::string start,
                   FindStartAdapter(config.lora, model));
  if (start.empty()) return absl::OkStatus();
  std::puts(absl::StrFormat("%-16s from %s", "", start).c_str());
  if (const std::string other = OtherBaseWarning(config, model);
      !other.empty()) {
    LogWarning(other);
  }
  return absl::OkStatus();
}

// Adds only warnings, because the run may be meant for another machine.
void WarnOfMachine(const Config& config, const ModelConfig& model) {
  for (const std::string& warning : OutputWarnings(config, model)) {
    LogWarning(warning);
  }
  // OutputWarnings already covers a folder that cannot be written.
  if (const absl::Status status = CheckMachine(config);
      !status.ok() && !IsFileError(status)) {
    LogWarning(
        absl::StrCat("on this machine: ", std::string(status.message())));
  }
}

// Returns the digest of data.path.
absl::StatusOr<std::string> CheckData(const Config& config,
                                      const ModelText& base) {
  RETURN_IF_ERROR(RequireDataPath(config.data));
  const int64_t context = base.model.max_positions;
  ASSIGN_OR_RETURN(
      const std::string digest,
      CheckDataset("data",
                   config.data.path,
                   MakeDatasetOptions(config),
                   &base.text,
                   [&](Dataset* data) {
                     RETURN_IF_ERROR(ApplyAnswerRule(config, data));
                     return ApplyViewLimits(
                         config, base.max_view(), base.text, data);
                   }));
  RETURN_IF_ERROR(CheckDataset("held out",
                               config.evaluation.path,
                               MakeHeldOutOptions(config),
                               nullptr,
                               [&](Dataset* data) {
                                 WarnOfUngradedProblems(config, *data);
                                 return ApplyHeldOutLimits(
                                     config, context, base.text, data);
                               })
                      .status());
  return digest;
}

// Checks the files for a process that the certificate names. A token that
// workers would miss is only a warning, since workers may have other settings
// than the trainer.
absl::Status CheckSecurity(const SecuritySection& security) {
  RoleSet needed;
  if (!security.certificate.empty()) {
    const auto own = ReadCertificate(security.certificate);
    if (!own.ok()) return WithExitCode(own.status(), ExitCode::kConfig);
    for (const Role role : {Role::kRollout, Role::kTeacher, Role::kTrainer}) {
      if (own->roles.Contains(role)) needed.Add({role});
    }
  }
  ASSIGN_OR_RETURN(const auto loaded, Security::Load(security, needed));
  if (const absl::Status status = loaded->AdmitsItself(); !status.ok()) {
    LogWarning(std::string(status.message()));
  }
  return absl::OkStatus();
}

// Returns the lengths of the samples in --samples or, without it, the longest
// that the configuration allows.
absl::StatusOr<SampleLengths> LengthsOf(const std::string& samples,
                                        const Config& config,
                                        const ModelText& base) {
  if (samples.empty()) return LongestSamples(config);
  ASSIGN_OR_RETURN(std::vector<SampleRow> rows,
                   ReadSampleRows(samples, base.model.vocab_size));
  RETURN_IF_ERROR(FillContexts(config, *base.text.views, &rows));
  return MeanLengths(rows, *base.text.views);
}

absl::Status Check(const CheckOptions& options) {
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  ASSIGN_OR_RETURN(const ModelText base, ReadModelText(loaded.config));
  const ModelConfig& model = base.model;
  const Here here = LookAround(loaded, base);
  const bool is_for_here = options.gpus == 0 && options.gpu_gib == 0;
  const Config& config =
      is_for_here ? here.ConfigOr(loaded.config) : loaded.config;
  RETURN_IF_ERROR(CheckTrains(config));
  RETURN_IF_ERROR(BaseModelName(config.model.path, config.model.name).status());
  RETURN_IF_ERROR(CheckSplits(config, model));
  RETURN_IF_ERROR(CheckAddressFiles(config));
  RETURN_IF_ERROR(base.text.views->RolloutPrompt("1 + 1?").status());
  const MemoryPlan plan = PlanMemory(config, model, base.teachers);
  PrintModels(base);
  ASSIGN_OR_RETURN(const bool has_weights, CheckWeights(model));
  if (!has_weights) {
    std::puts(absl::StrFormat("%-16s no weights were seen in %s: a run needs "
                              "them there",
                              "",
                              base.folder)
                  .c_str());
  }
  RETURN_IF_ERROR(CheckFurtherTeachers(config));
  RETURN_IF_ERROR(CheckAdapter(config, model, plan.lora_parameters));
  ASSIGN_OR_RETURN(const std::string data_digest, CheckData(config, base));
  if (!config.run.notify_url.empty()) {
    RETURN_IF_ERROR(LoadWebhook(config.run).status());
  }
  RETURN_IF_ERROR(CheckSecurity(config.security));
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
  PrintLines(PresetText(loaded));
  std::puts(AnswersOfStepText(config).c_str());
  PrintLines(TermsText(config.objective));
  PrintLines(MemoryText(config, model, plan));
  ASSIGN_OR_RETURN(
      const std::string passes,
      PassLimitsText(
          config, model, options.gpu_gib, ReportOf(here), base.teachers));
  std::puts(absl::StrFormat("%-16s %s", "passes", passes).c_str());
  const std::string kv_memory =
      AnswerMemoryText(config, model, options.gpu_gib, ReportOf(here));
  if (!kv_memory.empty()) {
    std::puts(
        absl::StrFormat("%-16s %s", "keys and values", kv_memory).c_str());
  }
  PrintDevices(here,
               config.model,
               model,
               PlanMemory(here.ConfigOr(config), model, base.teachers));
  ASSIGN_OR_RETURN(const SampleLengths lengths,
                   LengthsOf(options.samples, config, base));
  for (const SlowWork& slow : SlowWorkOf(model, PlansForGpu(config))) {
    std::puts(absl::StrFormat("%-16s %s", slow.work, ByLibTorch(slow.misfit))
                  .c_str());
  }
  PrintLines(
      StepCostText(config, model, lengths, options.rates, base.teachers));
  if (options.gpus > 0) {
    ASSIGN_OR_RETURN(
        const std::string split,
        SplitText(config,
                  model,
                  lengths,
                  {.count = options.gpus,
                   .bytes = static_cast<int64_t>(options.gpu_gib * kGiB)},
                  options.rates,
                  GivenBy(loaded),
                  base.teachers));
    std::puts(split.c_str());
  }
  for (const std::string& warning : WarningsOfVainKeys(loaded)) {
    LogWarning(warning);
  }
  WarnOfAnswerEnds(base);
  WarnOfMachine(config, model);
  if (const std::string other = OtherRunWarning(config, data_digest);
      !other.empty()) {
    LogWarning(other);
  }
  std::puts(has_weights ? "the configuration is sound"
                        : "the configuration is sound; no weights were seen");
  return absl::OkStatus();
}

}  // namespace

void AddCheckCommand(Command& app) {
  auto options = std::make_shared<CheckOptions>();
  Command command = app.AddSubcommand(
      "check", "Validates a configuration and prints its plan");
  AddConfigArgument(command, options->config);
  command
      .AddOption("--set", options->overrides, "key=value, overrides the file")
      .TakeAll();
  command
      .AddOption("--samples",
                 options->samples,
                 "JSON Lines {id, problem, reference, rollout_ids}, as a run's "
                 "samples/ holds them: plan for their mean lengths instead of "
                 "the longest answers and references after prompts of 200 "
                 "tokens")
      .Path()
      .NotEmpty();
  CommandOption flops =
      command.AddOption("--tflops",
                        options->rates.teraflops,
                        "TFLOP/s of a device's matrix products");
  CommandOption memory =
      command.AddOption("--memory-gbs",
                        options->rates.memory_gigabytes,
                        "GB/s at which a device reads its memory");
  CommandOption network = command.AddOption("--network-gbs",
                                            options->rates.network_gigabytes,
                                            "GB/s of a network link");
  command
      .AddOption("--gpus",
                 options->gpus,
                 "number of devices: recommend how many of them train, score "
                 "and sample, and how many a rollout worker has")
      .Range(1, 4096);
  command
      .AddOption("--gpu-gib",
                 options->gpu_gib,
                 "GiB of a GPU's memory: plan the trainer's passes for it, and "
                 "recommend only what fits there")
      .Positive();
  flops.Positive().Needs(memory).Needs(network);
  memory.Positive().Needs(flops).Needs(network);
  network.Positive().Needs(flops).Needs(memory);
  command.Does([options] { return Check(*options); });
}

}  // namespace dapd
