// GpuGenerator: answers prompts on the GPUs of this machine, with a rollout
// worker on each, instead of a model in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/text_pipeline.h"
#include "services/cli/answer_source.h"
#include "services/cli/local_generator.h"
#include "services/cli/local_workers.h"
#include "services/cli/worker_generator.h"

namespace dapd {

// Returns the GPUs of each worker for `answers` prompts, by their names in
// CUDA_VISIBLE_DEVICES: one GPU each, or as few as hold the model. `asked`: how
// many GPUs to use, from the first on; 0: all. Empty if this process answers as
// fast by itself, on its first GPU or on the CPU. Returns a CONFIG error if
// `asked` GPUs are not there, or none can be used.
absl::StatusOr<std::vector<std::vector<std::string>>> GpusOfWorkers(
    const LocalGeneratorOptions& options, int64_t asked, int64_t answers);

class GpuGenerator final : public AnswerSource {
 public:
  // `gpus`: from GpusOfWorkers.
  static absl::StatusOr<std::unique_ptr<GpuGenerator>> Load(
      const LocalGeneratorOptions& options,
      std::vector<std::vector<std::string>> gpus);

  const TextPipeline& text() const override { return generator_->text(); }

  // Starts the workers and answers as they get ready. A worker that ends is
  // started again; if it would end again, an error shows its last lines. Call
  // it once.
  absl::Status AnswerAll(const std::vector<AnswerPrompt>& prompts,
                         const OnAnswerEnded& on_answer) override;

 private:
  explicit GpuGenerator(LocalGeneratorOptions options)
      : options_(std::move(options)) {}

  const LocalGeneratorOptions options_;
  std::unique_ptr<LocalWorkers> workers_;
  std::unique_ptr<WorkerGenerator> generator_;
};

}  // namespace dapd
