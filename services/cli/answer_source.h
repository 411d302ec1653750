// AnswerSource: whoever answers prompts, a model in this process
// (local_generator.h) or rollout workers (worker_generator.h). Needs neither
// LibTorch nor gRPC.
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

// Told of the answer to prompts[index] once it has ended. An error ends the
// answering.
using OnAnswerEnded =
    std::function<absl::Status(size_t index, SampledAnswer answer)>;

class AnswerSource {
 public:
  virtual ~AnswerSource() = default;

  // The model's tokenizer and template.
  virtual const TextPipeline& text() const = 0;

  // Answers all prompts, as many side by side as there is room for, and tells
  // of each as it ends, one call at a time; progress on stderr. An answer is a
  // function of model, adapter, sampling, seed and its prompt, not of the
  // others. A prompt that does not fit the context is named before anything is
  // generated. To be called once, as the last thing: an implementation may free
  // what it needs no more (FAILED_PRECONDITION after that).
  virtual absl::Status AnswerAll(const std::vector<AnswerPrompt>& prompts,
                                 const OnAnswerEnded& on_answer) = 0;
};

// Exit code kData, naming the prompt, if one is empty or with an answer of
// `max_new_tokens` exceeds `context` tokens.
absl::Status CheckPromptsFit(const std::vector<AnswerPrompt>& prompts,
                             int64_t max_new_tokens,
                             int64_t context);

}  // namespace dapd
