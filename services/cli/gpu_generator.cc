#include "services/cli/gpu_generator.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/gpus/cuda_backend.h"
#include "common/gpus/gpu_report.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/memory_plan.h"
#include "common/model/spec/model_config.h"
#include "common/model/spec/role_split.h"

namespace dapd {
namespace {

// Workers first load the model, like the workers of a cluster's job.
constexpr double kPeerTimeoutSeconds = 3600;

// Returns the fewest GPUs that together hold the model; 1 if the machine's GPUs
// do not.
absl::StatusOr<size_t> GpusOfAWorker(const LocalGeneratorOptions& options,
                                     const std::vector<Gpu>& gpus) {
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(options.model));
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(folder));
  ASSIGN_OR_RETURN(Config config, options.WorkerConfig());
  const int64_t smallest =
      std::ranges::min_element(gpus, {}, &Gpu::total_bytes)->total_bytes;
  const auto most =
      std::min<int64_t>(kMostOfAWorker, static_cast<int64_t>(gpus.size()));
  for (int64_t count = 1; count <= most; ++count) {
    config.rollout.tensor_parallel = count;
    if (CheckSplit(model, count).ok() &&
        FitsDevice(PlanMemory(config, model).rollout, smallest)) {
      return static_cast<size_t>(count);
    }
  }
  return 1;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<std::string>>> GpusOfWorkers(
    const LocalGeneratorOptions& options, int64_t asked, int64_t answers) {
  if (options.device == DeviceChoice::kCpu) {
    if (asked == 0) return std::vector<std::vector<std::string>>();
    return WithExitCode(
        absl::InvalidArgumentError("--gpus is for GPUs, and --device is cpu"),
        ExitCode::kUsage);
  }
  GpuReport report = FindGpus();
  absl::Status usable = report.usable;
  if (usable.ok()) usable = CudaBackendPath().status();
  if (!usable.ok()) {
    // Without --gpus this process reports the fault itself, or computes on the
    // CPU.
    if (asked == 0) return std::vector<std::vector<std::string>>();
    return ConfigError(
        absl::StrCat("--gpus ", asked, ": ", std::string(usable.message())));
  }
  std::vector<std::string> names = GpuNames(report);
  const auto wanted = static_cast<size_t>(asked);
  if (wanted > names.size()) {
    return ConfigError(absl::StrCat("--gpus is ",
                                    asked,
                                    ", but there are ",
                                    names.size(),
                                    " GPUs (",
                                    absl::StrJoin(names, ", "),
                                    ")"));
  }
  if (wanted > 0) {
    names.resize(wanted);
    report.gpus.resize(wanted);
  }
  ASSIGN_OR_RETURN(const size_t of_worker, GpusOfAWorker(options, report.gpus));
  const size_t count =
      std::min(names.size() / of_worker, static_cast<size_t>(answers));
  std::vector<std::vector<std::string>> gpus;
  if (count * of_worker <= 1) return gpus;
  for (auto first = names.begin(); gpus.size() < count;) {
    const auto end = first + static_cast<std::ptrdiff_t>(of_worker);
    gpus.emplace_back(first, end);
    first = end;
  }
  return gpus;
}

absl::StatusOr<std::unique_ptr<GpuGenerator>> GpuGenerator::Load(
    const LocalGeneratorOptions& options,
    std::vector<std::vector<std::string>> gpus) {
  std::unique_ptr<GpuGenerator> generator(new GpuGenerator(options));
  std::vector<std::string> names;
  for (const std::vector<std::string>& each : gpus) {
    names.push_back(absl::StrJoin(each, " with "));
  }
  LogInfo(absl::StrCat(gpus.size(),
                       gpus.size() == 1 ? " worker answers" : " workers answer",
                       ", on GPU ",
                       absl::StrJoin(names, ", ")));
  ASSIGN_OR_RETURN(generator->workers_, LocalWorkers::Make(std::move(gpus)));
  LocalWorkers& workers = *generator->workers_;
  ASSIGN_OR_RETURN(generator->generator_,
                   WorkerGenerator::Load(
                       options,
                       {.addresses = absl::StrJoin(workers.addresses(), ","),
                        .peer_timeout_seconds = kPeerTimeoutSeconds},
                       [&workers] { return workers.KeepAlive(); }));
  return generator;
}

absl::Status GpuGenerator::AnswerAll(const std::vector<AnswerPrompt>& prompts,
                                     const OnAnswerEnded& on_answer) {
  const int64_t max_new_tokens = options_.sampling.max_new_tokens;
  RETURN_IF_ERROR(
      CheckPromptsFit(prompts, max_new_tokens, generator_->context()));
  if (prompts.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(options_.model));
  ASSIGN_OR_RETURN(const Precision precision, options_.ResolvedPrecision());
  RETURN_IF_ERROR(workers_->Start(
      {.model_path = folder,
       .precision = precision,
       .slots = options_.slots,
       .kv_memory_mib = options_.kv_memory_mib,
       .kv_precision = options_.kv_precision,
       .max_new_tokens = max_new_tokens,
       .lora_rank = std::max<int64_t>(1, generator_->lora_rank())}));
  return generator_->AnswerAll(prompts, on_answer);
}

}  // namespace dapd
