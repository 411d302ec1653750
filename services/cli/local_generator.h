// A model in this process that answers prompts: what `generate` and `eval`
// share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/command_line.h"
#include "common/data/text_pipeline.h"
#include "common/generation/engine.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"

namespace dapd {

struct LocalGeneratorOptions {
  std::string model;
  std::string adapter;
  std::string precision = "float32";
  std::string device = "auto";
  int64_t slots = 32;
  SamplingParams sampling;
  uint64_t seed = 42;

  // Adds --model, --adapter, --precision, --device, --slots, --temperature,
  // --top-p, --top-k, --max-new-tokens and --seed.
  void AddFlags(Command& command);
};

struct LocalAnswer {
  std::vector<int32_t> ids;  // its end token included
  std::vector<float> logprobs;
  FinishReason finish_reason = FinishReason::kNone;
};

class LocalGenerator {
 public:
  static absl::StatusOr<std::unique_ptr<LocalGenerator>> Load(
      const LocalGeneratorOptions& options);

  const TextPipeline& text() const { return text_; }
  const ModelConfig& model() const { return model_; }

  struct Prompt {
    std::string name;  // for error messages
    std::vector<int32_t> ids;
    uint32_t example = 0;  // with `sample`, the key of its random numbers
    uint32_t sample = 0;
  };
  // Answers in the order of the prompts, all slots in use, progress on stderr.
  // A prompt that does not fit is named before anything is generated.
  absl::StatusOr<std::vector<LocalAnswer>> Answer(
      const std::vector<Prompt>& prompts);

 private:
  explicit LocalGenerator(LocalGeneratorOptions options)
      : options_(std::move(options)) {}

  const LocalGeneratorOptions options_;
  ModelConfig model_;
  TextPipeline text_;
  std::unique_ptr<GenerationEngine> engine_;
};

}  // namespace dapd
