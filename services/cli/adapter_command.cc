// dapd adapter: verify an adapter against a model, merge it into one, or make a
// fresh one.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/hub/model_folder.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/model_card.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/base_digest.h"
#include "common/model/weights/merged_model.h"
#include "common/tensor/torch_bridge.h"
#include "common/training/policy.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxCardBytes = 1 << 22;

struct AdapterOptions {
  std::string model;
  std::string adapter;
  std::string output;
  int64_t max_shard_mib = 4096;
  bool json = false;
  LoraSection lora;
  uint64_t seed = 42;
};

nlohmann::ordered_json ToJson(const AdapterReport& report) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const AdapterReport::Layer& layer : report.layers) {
    layers.push_back(layer.norm_delta);
  }
  return {{"modules_applied", report.modules_applied},
          {"modules_expected", report.modules_expected},
          {"norm_a", report.norm_a},
          {"norm_b", report.norm_b},
          {"norm_delta", report.norm_delta},
          {"norm_delta_by_layer", layers},
          {"changes_nothing", report.changes_nothing}};
}

// The model card's facts on an adapter's base; empty without a card or with a
// card of another program.
struct BaseOfAdapter {
  std::string digest;
  std::string trained_on;

  bool is_known() const { return !trained_on.empty(); }
  bool is_other() const { return is_known() && digest != trained_on; }
};

struct AdapterOfModel {
  std::string model_folder;
  std::string folder;
  std::string card;  // empty: none
  Adapter adapter;
  BaseOfAdapter base;
};

absl::StatusOr<AdapterOfModel> ReadAdapterOfModel(
    const AdapterOptions& options) {
  AdapterOfModel read;
  ASSIGN_OR_RETURN(read.model_folder, FindModelFolder(options.model));
  ASSIGN_OR_RETURN(read.folder, FindAdapterFolder(options.adapter));
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(read.model_folder));
  ASSIGN_OR_RETURN(read.adapter, ReadAdapter(read.folder, model, at::kCPU));
  const auto card =
      ReadFile(JoinPath(read.folder, kModelCardFile), kMaxCardBytes);
  if (card.ok()) read.card = *card;
  read.base.trained_on = CardBaseDigest(read.card);
  if (read.base.is_known()) {
    ASSIGN_OR_RETURN(read.base.digest, BaseDigest(read.model_folder));
  }
  return read;
}

std::string Describe(const BaseOfAdapter& base) {
  if (!base.is_known()) return "unknown whether the adapter was trained on it";
  if (!base.is_other()) return "the adapter was trained on it";
  return absl::StrFormat(
      "the adapter was NOT trained on it, or one of its *.json and *.jinja "
      "files has changed: SHA-256 %s, trained on %s",
      base.digest,
      base.trained_on);
}

absl::Status VerifyAdapter(const AdapterOptions& options) {
  ASSIGN_OR_RETURN(const AdapterOfModel read, ReadAdapterOfModel(options));
  const Adapter& adapter = read.adapter;
  const AdapterReport report = InspectAdapter(adapter);
  if (options.json) {
    nlohmann::ordered_json printed = ToJson(report);
    const BaseOfAdapter& base = read.base;
    printed["base"] = !base.is_known()  ? "unknown"
                      : base.is_other() ? "another"
                                        : "same";
    std::puts(printed.dump(2).c_str());
    return absl::OkStatus();
  }
  std::puts(absl::StrFormat("applied %d/%d modules, rank %d, alpha %g\n"
                            "norms: A %.6g, B %.6g, update %.6g",
                            report.modules_applied,
                            report.modules_expected,
                            adapter.config.rank,
                            adapter.config.alpha,
                            report.norm_a,
                            report.norm_b,
                            report.norm_delta)
                .c_str());
  for (const AdapterReport::Layer& layer : report.layers) {
    std::puts(absl::StrFormat(
                  "  layer %2d: update %.6g", layer.layer, layer.norm_delta)
                  .c_str());
  }
  std::puts(absl::StrCat("base: ", Describe(read.base)).c_str());
  if (report.changes_nothing) std::puts("this adapter changes nothing");
  return absl::OkStatus();
}

absl::Status InitAdapter(const AdapterOptions& options) {
  std::set<std::string> targets;
  for (const std::string& target : options.lora.targets) {
    if (targets.insert(target).second) continue;
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                            "--targets: '", target, "' occurs twice")),
                        ExitCode::kUsage);
  }
  RETURN_IF_ERROR(CheckNewOutput(options.output));
  ASSIGN_OR_RETURN(const std::string base, FindModelFolder(options.model));
  ASSIGN_OR_RETURN(const ModelConfig model, ReadModelConfig(base));
  ASSIGN_OR_RETURN(const LoraConfig lora, MakeLoraConfig(options.lora, model));
  const std::string base_name = BaseModelName(options.model);
  RETURN_IF_ERROR(
      WriteAdapter(options.output,
                   MakeFreshAdapter(model, lora, options.seed, at::kCPU),
                   base_name));
  return WriteFileAtomically(
      JoinPath(options.output, kModelCardFile),
      FormatModelCard(
          {.title = absl::StrFormat("Start of runs with seed %d", options.seed),
           .base_model = base_name,
           .lora = lora}));
}

// Returns the card of the merged model. It keeps the adapter card's section on
// training, unless the adapter was trained on another base; a missing card or a
// card of another program says nothing.
std::string MergedCard(const AdapterOptions& options,
                       const AdapterOfModel& read) {
  const std::filesystem::path output =
      std::filesystem::path(options.output).lexically_normal();
  return FormatModelCard(
      {.title = output.has_filename() ? output.filename()
                                      : output.parent_path().filename(),
       .base_model = BaseModelName(options.model),
       .lora = read.adapter.config,
       .is_merged = true,
       .training = read.base.is_other() ? "" : CardTraining(read.card)});
}

absl::Status MergeAdapter(const AdapterOptions& options) {
  ASSIGN_OR_RETURN(const AdapterOfModel read, ReadAdapterOfModel(options));
  if (read.base.is_other()) {
    LogWarning(absl::StrCat(options.model, ": ", Describe(read.base)));
  }
  ASSIGN_OR_RETURN(
      const MergedModel merged,
      WriteMergedModel(read.model_folder,
                       read.adapter,
                       options.output,
                       static_cast<uint64_t>(options.max_shard_mib) << 20,
                       MergedCard(options, read)));
  std::puts(absl::StrFormat("%s: %d modules merged, %.2f GiB in %d %s%s",
                            options.output,
                            merged.modules,
                            static_cast<double>(merged.bytes) / (1 << 30),
                            merged.shards,
                            merged.shards == 1 ? "file" : "files",
                            InspectAdapter(read.adapter).changes_nothing
                                ? "; this adapter changes nothing"
                                : "")
                .c_str());
  return absl::OkStatus();
}

}  // namespace

void AddAdapterCommand(Command& app) {
  auto options = std::make_shared<AdapterOptions>();
  Command command =
      app.AddSubcommand("adapter", "Verifies, merges or creates an adapter");
  command.RequireSubcommand();

  Command verify = command.AddSubcommand(
      "verify", "Checks that an adapter fits the model and has an effect");
  verify.AddOption("--model", options->model, "Hugging Face folder or id")
      .Path()
      .Required();
  verify.AddOption("--adapter", options->adapter, "PEFT folder or id")
      .Path()
      .Required();
  verify.AddFlag("--json", options->json, "print JSON");
  verify.Does([options] {
    return CatchTorch([&] { return VerifyAdapter(*options); });
  });

  Command merge = command.AddSubcommand(
      "merge", "Writes a whole model with the adapter in its weights");
  merge.AddOption("--model", options->model, "Hugging Face folder or id")
      .Path()
      .Required();
  merge.AddOption("--adapter", options->adapter, "PEFT folder or id")
      .Path()
      .Required();
  merge.AddOption("--output", options->output, "Hugging Face folder to write")
      .Path()
      .Required();
  merge
      .AddOption(
          "--max-shard-mib", options->max_shard_mib, "largest file of weights")
      .Range(1, 1 << 20)
      .ShowDefault();
  merge.Does(
      [options] { return CatchTorch([&] { return MergeAdapter(*options); }); });

  Command init = command.AddSubcommand(
      "init", "Writes the adapter that a run with this seed starts from");
  init.AddOption("--model", options->model, "Hugging Face folder or id")
      .Path()
      .Required();
  init.AddOption("--output", options->output, "PEFT folder to write")
      .Path()
      .Required();
  init.AddOption("--rank", options->lora.rank, "rank")
      .Range(1, 4096)
      .ShowDefault();
  init.AddOption("--alpha", options->lora.alpha, "scale is alpha / rank")
      .Range(1e-6, kMaxLoraAlpha)
      .ShowDefault();
  init.AddOption("--targets", options->lora.targets, "projections")
      .ShowDefault();
  init.AddOption("--seed", options->seed, "as run.seed").ShowDefault();
  init.Does(
      [options] { return CatchTorch([&] { return InitAdapter(*options); }); });
}

}  // namespace dapd
