// WorkerGenerator: answers prompts by rollout workers instead of a model in
// this process.
#pragma once

#include <cstdint>
#include <functional>
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
  // Reads model and adapter: the workers get the adapter, and must give the
  // log-probabilities of this model for the beginning of a prompt. `generator`:
  // its device and slots are ignored. `look` is called every second or so while
  // they answer; its error ends the answering.
  static absl::StatusOr<std::unique_ptr<WorkerGenerator>> Load(
      const LocalGeneratorOptions& generator,
      const WorkerOptions& workers,
      std::function<absl::Status()> look = [] { return absl::OkStatus(); });

  const TextPipeline& text() const override { return text_; }
  // Returns the model's context, in tokens.
  int64_t context() const { return weights_->config.max_positions; }
  // Returns the rank of the adapter; 0: the base.
  int64_t lora_rank() const {
    return adapter_ == nullptr ? 0 : adapter_->config.rank;
  }

  // Workers that die or hang only cost time. Returns UNAVAILABLE if no usable
  // worker is found for --peer-timeout, FAILED_PRECONDITION if all serve
  // another model or precision; both errors name each worker. Call it once, as
  // the last call.
  absl::Status AnswerAll(const std::vector<AnswerPrompt>& prompts,
                         const OnAnswerEnded& on_answer) override;

 private:
  WorkerGenerator(LocalGeneratorOptions generator,
                  WorkerOptions workers,
                  std::function<absl::Status()> look)
      : generator_(std::move(generator)),
        workers_(std::move(workers)),
        look_(std::move(look)) {}

  const LocalGeneratorOptions generator_;
  const WorkerOptions workers_;
  const std::function<absl::Status()> look_;
  TextPipeline text_;
  std::shared_ptr<const ModelWeights> weights_;
  std::shared_ptr<const Adapter> adapter_;  // null: the base
};

}  // namespace dapd
