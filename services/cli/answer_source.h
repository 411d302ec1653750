// AnswerSource: answers prompts by a model in this process (local_generator.h)
// or by rollout workers (worker_generator.h). Needs neither LibTorch nor gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/data/text_pipeline.h"
#include "common/generation/decode_request.h"

namespace dapd {

struct AnswerPrompt {
  std::string name;  // for error messages
  std::vector<int32_t> ids;
  uint32_t example = 0;  // with `sample`, the key of its random numbers
  uint32_t sample = 0;
};

// Called with the answer to prompts[index] once it has ended. An error ends the
// answering.
using OnAnswerEnded =
    std::function<absl::Status(size_t index, SampledAnswer answer)>;

class AnswerSource {
 public:
  virtual ~AnswerSource() = default;

  // Returns the model's tokenizer and template.
  virtual const TextPipeline& text() const = 0;

  // Answers all prompts, as many side by side as fit, and calls `on_answer` as
  // each ends, one call at a time; shows progress on stderr. An answer depends
  // only on model, adapter, sampling, seed and its prompt. A prompt that does
  // not fit the context is an error before anything is generated. Call it once,
  // as the last call: an implementation may free its model (FAILED_PRECONDITION
  // afterwards).
  virtual absl::Status AnswerAll(const std::vector<AnswerPrompt>& prompts,
                                 const OnAnswerEnded& on_answer) = 0;
};

// Fails with exit code kData, naming the prompt, if a prompt is empty or
// exceeds `context` tokens together with an answer of `max_new_tokens`.
absl::Status CheckPromptsFit(const std::vector<AnswerPrompt>& prompts,
                             int64_t max_new_tokens,
                             int64_t context);

}  // namespace dapd
