#include "services/cli/worker_generator.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/base/exit_code.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/validate_config.h"
#include "common/hub/model_folder.h"
#include "common/model/weights/describe_worker.h"
#include "common/model/weights/placement.h"
#include "services/trainer/publish/make_policy_update.h"

namespace dapd {
namespace {

// The number of probe tokens; other weights cannot agree on so many by chance.
constexpr size_t kProbeTokens = 16;
// How often the progress line is updated.
constexpr absl::Duration kTick = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerGenerator>> WorkerGenerator::Load(
    const LocalGeneratorOptions& options,
    const WorkerOptions& workers,
    std::function<absl::Status()> look) {
  std::unique_ptr<WorkerGenerator> generator(
      new WorkerGenerator(options, workers, std::move(look)));
  ASSIGN_OR_RETURN(const Precision precision, options.ResolvedPrecision());
  RETURN_IF_ERROR(CheckKvPrecision(options.kv_precision, precision));
  ASSIGN_OR_RETURN(const std::string folder, FindModelFolder(options.model));
  ASSIGN_OR_RETURN(generator->weights_,
                   LoadModelWeights(folder, TypeOf(precision), at::kCPU));
  const ModelConfig& model = generator->weights_->config;
  ASSIGN_OR_RETURN(
      generator->text_,
      LoadTextPipeline(folder, ViewOptions{}, model.eos_token_ids.front()));
  if (!options.adapter.empty()) {
    ASSIGN_OR_RETURN(const std::string adapter_folder,
                     FindAdapterFolder(options.adapter));
    ASSIGN_OR_RETURN(Adapter read,
                     ReadAdapter(adapter_folder, model, at::kCPU));
    generator->adapter_ = std::make_shared<const Adapter>(std::move(read));
  }
  return generator;
}

absl::Status WorkerGenerator::AnswerAll(
    const std::vector<AnswerPrompt>& prompts, const OnAnswerEnded& on_answer) {
  if (weights_ == nullptr) {
    return absl::FailedPreconditionError(
        "the model that workers are compared with has been freed: they can "
        "be asked for answers once");
  }
  const SamplingParams& sampling = generator_.sampling;
  RETURN_IF_ERROR(CheckPromptsFit(
      prompts, sampling.max_new_tokens, weights_->config.max_positions));
  if (prompts.empty()) return absl::OkStatus();
  std::vector<int32_t> probe_ids = prompts.front().ids;
  if (probe_ids.size() > kProbeTokens) probe_ids.resize(kProbeTokens);
  if (probe_ids.size() < 2) {
    return DataError(
        absl::StrCat(prompts.front().name,
                     ": a prompt of one token is too short for a probe"));
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const PolicyUpdate> policy,
                   MakePolicyUpdate(*weights_,
                                    adapter_.get(),
                                    /*version=*/0,
                                    /*key=*/"",
                                    probe_ids,
                                    DigestKind::kSha256,
                                    generator_.kv_precision));
  const ExpectedWorker expected = {
      .layout_digest = weights_->layout_digest,
      .precision = SamplingPrecision(PrecisionOf(weights_->dtype()),
                                     generator_.kv_precision),
      .vocab_size = weights_->config.vocab_size,
      .hidden_size = weights_->config.hidden_size,
      .end_ids = weights_->config.eos_token_ids};
  // The workers have weights of their own.
  weights_ = nullptr;
  adapter_ = nullptr;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<RolloutClient> client,
      OpenRolloutClient(workers_, expected, sampling.max_new_tokens));
  client->SetPolicy(policy);
  for (size_t i = 0; i < prompts.size(); ++i) {
    client->Submit({.id = i,
                    .request = {.prompt_ids = prompts[i].ids,
                                .sampling = sampling,
                                .key = {.seed = generator_.seed,
                                        .example = prompts[i].example,
                                        .sample = prompts[i].sample}}});
  }
  const auto total = static_cast<int64_t>(prompts.size());
  Progress progress("answers", total);
  int64_t tokens = 0;
  for (int64_t done = 0; done < total;) {
    RETURN_IF_ERROR(look_());
    ASSIGN_OR_RETURN(std::optional<RolloutResult> result,
                     client->NextWithin(kTick));
    if (result.has_value()) {
      ++done;
      tokens += static_cast<int64_t>(result->ids.size());
      RETURN_IF_ERROR(on_answer(result->id, *std::move(result)));
    }
    progress.Update(done, absl::StrCat(tokens, " tokens"));
  }
  return absl::OkStatus();
}

}  // namespace dapd
