#include "services/cli/local_generator.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/validate_config.h"
#include "common/generation/make_decode_backend.h"
#include "common/hub/model_folder.h"
#include "common/model/weights/kv_memory.h"
#include "common/model/weights/placement.h"

namespace dapd {

void LocalGeneratorOptions::AddFlags(Command& command) {
  command.AddOption("--model", model, "Hugging Face folder or id")
      .Path()
      .Required();
  command.AddOption("--adapter", adapter, "PEFT folder or id")
      .Path()
      .NotEmpty();
  command
      .AddOption("--precision",
                 precision,
                 "float32, bfloat16, or auto: as the model is stored")
      .OneOf({"float32", "bfloat16", "auto"})
      .ShowDefault();
  command
      .AddOption(
          "--device", EnumVariable(&device), "where the model is computed")
      .ShowDefault();
  command.AddOption("--slots", slots, "answers decoded in parallel")
      .Range(1, 1024)
      .ShowDefault();
  command
      .AddOption("--kv-memory-mib",
                 kv_memory_mib,
                 "MiB of memory for keys and values, on each GPU; answers that "
                 "do not fit wait (default: what is free beside the model)")
      .Range(1, 100'000'000);
  command
      .AddOption("--kv-precision",
                 EnumVariable(&kv_precision),
                 "precision of keys and values: as the model, or float8, "
                 "which takes half of the memory and changes the answers a "
                 "little; for bfloat16 models")
      .ShowDefault();
  command
      .AddOption("--temperature",
                 sampling.temperature,
                 "sampling temperature; 0: greedy")
      .Range(0.0, 100.0)
      .ShowDefault();
  command
      .AddOption("--top-p", sampling.top_p, "nucleus sampling; 1: all tokens")
      .Range(1e-9, 1.0)
      .ShowDefault();
  command
      .AddOption("--top-k",
                 sampling.top_k,
                 "most probable tokens to sample from; 0: all")
      .Range(0, 1'000'000)
      .ShowDefault();
  command
      .AddOption("--max-new-tokens", sampling.max_new_tokens, "longest answer")
      .Positive()
      .ShowDefault();
  command.AddOption("--seed", seed, "seed of the sampling").ShowDefault();
}

absl::StatusOr<Precision> LocalGeneratorOptions::ResolvedPrecision() const {
  if (const auto named = ParseName<Precision>(precision)) return *named;
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(model));
  ASSIGN_OR_RETURN(const at::ScalarType stored, StoredPrecision(folder));
  return PrecisionOf(stored);
}

absl::StatusOr<Config> LocalGeneratorOptions::WorkerConfig() const {
  Config config;
  config.model.device = DeviceChoice::kCuda;
  ASSIGN_OR_RETURN(config.model.precision, ResolvedPrecision());
  config.rollout.slots = slots;
  config.rollout.max_new_tokens = sampling.max_new_tokens;
  config.rollout.kv_memory_mib = kv_memory_mib;
  config.rollout.kv_precision = kv_precision;
  return config;
}

absl::StatusOr<std::unique_ptr<LocalGenerator>> LocalGenerator::Load(
    const LocalGeneratorOptions& options) {
  auto generator = std::unique_ptr<LocalGenerator>(new LocalGenerator(options));
  ASSIGN_OR_RETURN(Config config, options.WorkerConfig());
  const Precision precision = config.model.precision;
  RETURN_IF_ERROR(CheckKvPrecision(options.kv_precision, precision));
  ASSIGN_OR_RETURN(const at::Device device,
                   OpenDevice({.device = options.device}));
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(options.model));
  std::string adapter_folder;
  if (!options.adapter.empty()) {
    ASSIGN_OR_RETURN(adapter_folder, FindAdapterFolder(options.adapter));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights,
                   LoadModelWeights(folder, TypeOf(precision), device));
  generator->model_ = weights->config;
  const ModelConfig& model = generator->model_;
  ASSIGN_OR_RETURN(
      generator->text_,
      LoadTextPipeline(folder, ViewOptions{}, model.eos_token_ids.front()));
  std::shared_ptr<const Adapter> adapter;
  if (!adapter_folder.empty()) {
    ASSIGN_OR_RETURN(Adapter read, ReadAdapter(adapter_folder, model, device));
    adapter = std::make_shared<const Adapter>(std::move(read));
  }
  if (adapter != nullptr) config.lora.rank = adapter->config.rank;
  std::unique_ptr<DecodeBackend> backend = MakeDecodeBackend(
      std::move(weights),
      {.slots = options.slots,
       .num_tokens = generator->text_.tokenizer->size(),
       .kv_float8 = options.kv_precision == KvPrecision::kFloat8});
  const int64_t kv_memory = KvMemoryBytes(config, model, device);
  generator->engine_ = std::make_unique<GenerationEngine>(
      std::move(backend), EngineOptions{.kv_memory_bytes = kv_memory});
  generator->engine_->SetAdapter(std::move(adapter));
  return generator;
}

absl::Status LocalGenerator::AnswerAll(const std::vector<AnswerPrompt>& prompts,
                                       const OnAnswerEnded& on_answer) {
  RETURN_IF_ERROR(CheckPromptsFit(
      prompts, options_.sampling.max_new_tokens, model().max_positions));
  std::vector<SampledAnswer> answers(prompts.size());
  Progress progress("answers", static_cast<int64_t>(prompts.size()));
  size_t next = 0;
  int64_t done = 0;
  int64_t tokens = 0;
  while (done < static_cast<int64_t>(prompts.size())) {
    while (next < prompts.size() && engine_->num_free() > 0) {
      const AnswerPrompt& prompt = prompts[next];
      const absl::Status submitted =
          engine_->Submit(next,
                          {.prompt_ids = prompt.ids,
                           .sampling = options_.sampling,
                           .key = {.seed = options_.seed,
                                   .example = prompt.example,
                                   .sample = prompt.sample}});
      if (!submitted.ok()) {
        return DataError(
            absl::StrCat(prompt.name, ": ", std::string(submitted.message())));
      }
      ++next;
    }
    for (const SampledToken& token : engine_->Step()) {
      RETURN_IF_ERROR(token.error);
      SampledAnswer& answer = answers[token.id];
      answer.ids.push_back(token.token);
      answer.logprobs.push_back(token.logprob);
      answer.finish_reason = token.finish_reason;
      answer.cost = token.cost;
      ++tokens;
      if (token.finish_reason == FinishReason::kNone) continue;
      ++done;
      RETURN_IF_ERROR(on_answer(token.id, std::move(answer)));
    }
    progress.Update(done, absl::StrCat(tokens, " tokens"));
  }
  return absl::OkStatus();
}

}  // namespace dapd
