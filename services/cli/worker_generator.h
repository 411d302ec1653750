// Rollout workers that answer prompts, in place of a model in this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/text_pipeline.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "services/cli/answer_source.h"
#include "services/cli/local_generator.h"
#include "services/cli/open_rollout_client.h"

namespace dapd {

class WorkerGenerator final : public AnswerSource {
 public:
  // Reads model and adapter: the workers get the adapter, and have to give the
  // log-probabilities of the model here for the beginning of a prompt.
  // `generator`: its device and slots have no meaning.
  static absl::StatusOr<std::unique_ptr<WorkerGenerator>> Load(
      const LocalGeneratorOptions& generator, const WorkerOptions& workers);

  const TextPipeline& text() const override { return text_; }

  // A worker that dies or hangs costs nothing but time. UNAVAILABLE if there is
  // no usable one for --peer-timeout, FAILED_PRECONDITION if all serve another
  // model or precision; each is named. To be called once.
  absl::Status AnswerAll(const std::vector<AnswerPrompt>& prompts,
                         const OnAnswerEnded& on_answer) override;

 private:
  WorkerGenerator(LocalGeneratorOptions generator, WorkerOptions workers)
      : generator_(std::move(generator)), workers_(std::move(workers)) {}

  const LocalGeneratorOptions generator_;
  const WorkerOptions workers_;
  TextPipeline text_;
  std::shared_ptr<const ModelWeights> weights_;
  std::shared_ptr<const Adapter> adapter_;  // null: the base
};

}  // namespace dapd
