// dapd check: is the configuration sound, does what it names exist, and what
// will the run need?

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/config/preset_terms.h"
#include "common/data/dataset.h"
#include "common/data/text_pipeline.h"
#include "common/model/memory_plan.h"
#include "common/model/model_config.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

struct CheckOptions {
  std::string config;
  std::vector<std::string> overrides;
};

absl::Status CheckDataset(const char* key,
                          const std::string& path,
                          const DataSection& section) {
  if (path.empty()) {
    std::puts(absl::StrFormat("%-16s none", key).c_str());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Dataset data,
                   ReadDataset(path, MakeDatasetOptions(section)));
  std::puts(absl::StrFormat("%-16s %s: %d problems, %d rows skipped, digest %s",
                            key,
                            path,
                            data.problems.size(),
                            data.skipped_rows,
                            data.digest.substr(0, 16))
                .c_str());
  return absl::OkStatus();
}

absl::Status Check(const CheckOptions& options) {
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  const Config& config = loaded.config;
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(config.model.path));
  ASSIGN_OR_RETURN(const TextPipeline text,
                   LoadTextPipeline(config.model.path,
                                    config.objective,
                                    static_cast<int32_t>(model.pad_token_id)));
  RETURN_IF_ERROR(text.views->RolloutPrompt("1 + 1?").status());
  const MemoryPlan plan = PlanMemory(config, model);
  std::puts(absl::StrFormat(
                "%-16s %s: %s, %d layers, hidden %d, %d parameters, context %d",
                "model",
                config.model.path,
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
  RETURN_IF_ERROR(CheckDataset("data", config.data.path, config.data));
  RETURN_IF_ERROR(
      CheckDataset("held out", config.evaluation.path, config.data));
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
  std::puts("terms            student <- teacher (weights), clip, weight");
  double sum = 0.0;
  for (const TermConfig& term : ExpandTerms(config.objective)) {
    std::puts(absl::StrFormat("  %-21s %s <- %s (%s), %g, %.6g",
                              term.name,
                              term.student,
                              term.teacher,
                              term.teacher_weights,
                              term.clip,
                              term.weight)
                  .c_str());
    sum += term.weight;
  }
  std::puts(absl::StrFormat("  sum of weights      %.6g", sum).c_str());
  const auto gib = [](double bytes) { return bytes / (1 << 30); };
  std::puts(absl::StrFormat(
                "memory (GiB)     rollout %.2f, teacher %.2f, trainer %.2f "
                "each, at most",
                gib(plan.rollout_bytes),
                gib(plan.teacher_bytes),
                gib(plan.trainer_bytes))
                .c_str());
  std::puts(
      absl::StrFormat("wire (MiB/step)  scores %.1f, adapter %.1f a worker",
                      plan.payload_bytes_a_step / (1 << 20),
                      plan.adapter_bytes / (1 << 20))
          .c_str());
  std::puts("the configuration is sound");
  return absl::OkStatus();
}

}  // namespace

void AddCheckCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand(
      "check", "Validate a configuration and print its plan");
  command->add_option("config", options->config, "YAML configuration")
      ->required();
  command->add_option("--set", options->overrides, "key=value over the file")
      ->take_all();
  command->callback(
      [options, action] { *action = [options] { return Check(*options); }; });
}

}  // namespace dapd
