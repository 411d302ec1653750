// LocalGenerator: answers prompts by a model in this process, for `generate`
// and `eval`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/command_line.h"
#include "common/config/config.h"
#include "common/data/text_pipeline.h"
#include "common/generation/engine.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "services/cli/answer_source.h"

namespace dapd {

struct LocalGeneratorOptions {
  std::string model;
  std::string adapter;
  std::string precision = "float32";  // or "bfloat16", or "auto": as stored
  DeviceChoice device = DeviceChoice::kAuto;
  int64_t slots = 32;
  int64_t kv_memory_mib = 0;  // as rollout.kv_memory_mib
  KvPrecision kv_precision = KvPrecision::kModel;
  SamplingParams sampling;
  uint64_t seed = 42;

  // Adds --model, --adapter, --precision, --device, --slots, --kv-memory-mib,
  // --kv-precision, --temperature, --top-p, --top-k, --max-new-tokens and
  // --seed.
  void AddFlags(Command& command);
  // Returns the precision; for "auto" it reads the headers of the model's
  // files.
  absl::StatusOr<Precision> ResolvedPrecision() const;
  // Returns the configuration of a rollout worker that answers alike on a GPU,
  // for plans of its memory.
  absl::StatusOr<Config> WorkerConfig() const;
};

class LocalGenerator final : public AnswerSource {
 public:
  static absl::StatusOr<std::unique_ptr<LocalGenerator>> Load(
      const LocalGeneratorOptions& options);

  const TextPipeline& text() const override { return text_; }
  const ModelConfig& model() const { return model_; }

  absl::Status AnswerAll(const std::vector<AnswerPrompt>& prompts,
                         const OnAnswerEnded& on_answer) override;

 private:
  explicit LocalGenerator(LocalGeneratorOptions options)
      : options_(std::move(options)) {}

  const LocalGeneratorOptions options_;
  ModelConfig model_;
  TextPipeline text_;
  std::unique_ptr<GenerationEngine> engine_;
};

}  // namespace dapd
