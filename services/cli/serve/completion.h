// OpenCompletion: the answers to one request, while workers sample them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/tokenizer/tokenizer.h"
#include "services/cli/serve/answer_text.h"
#include "services/cli/serve/completion_request.h"
#include "services/cli/serve/worker_desk.h"

namespace dapd {

enum class CompletionEnd {
  kNone,    // the answer goes on
  kStop,    // an end token, or a stop of the request
  kLength,  // max_tokens
};
// Returns OpenAI's name: "stop", "length"; "" for kNone.
const char* NameOf(CompletionEnd end);

// The next part of an answer.
struct CompletionPiece {
  size_t answer = 0;  // prompt * n + number of the answer to it
  // One for each of the prompt's tokens from the second on, if the request asks
  // for them.
  std::vector<ScoredToken> prompt_scores;
  std::string text;
  // In completions the end token is the last, although the text is without it,
  // as in OpenAI's API; in a chat it is left out.
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  CompletionEnd end = CompletionEnd::kNone;

  // Appends the next part of the same answer.
  void Append(const CompletionPiece& next);
};

struct CompletionLimits {
  int64_t max_new_tokens = 1;  // of each answer; 0: only the prompts matter
  // From now until all answers are complete.
  absl::Duration time = absl::Minutes(10);
  // How long no worker may be usable.
  absl::Duration patience = absl::Seconds(30);
};

// Used by one thread.
class OpenCompletion {
 public:
  // `prompts`: the tokens of each prompt. Answer a of prompt p is sampled with
  // the key {seed, example: p, sample: a}, so `dapd generate` with this seed
  // gives the same first answers. Answer 0 of a prompt has the prompt's scores.
  // `gives_up` is asked several times a second; if it returns true, the answers
  // are cancelled. `desk` and `tokenizer` must outlive the object.
  OpenCompletion(WorkerDesk& desk,
                 const Tokenizer& tokenizer,
                 const CompletionRequest& request,
                 const std::vector<std::vector<int32_t>>& prompts,
                 const CompletionLimits& limits,
                 std::function<bool()> gives_up);

  // Returns the next part of an answer; with `done()` no call may follow.
  //
  // If the worker changes its policy or is lost, all answers are sampled again
  // from their start, at most kMaxTries times, unless a part was returned;
  // then, and if it fails again, the error is UNAVAILABLE. Other errors are
  // returned as they are: see WorkerDesk::Start, and INVALID_ARGUMENT for a
  // prompt that the model cannot take.
  absl::StatusOr<CompletionPiece> Next();
  // Returns all answers, whole. No part is returned before, so that a change of
  // the policy costs only time.
  absl::StatusOr<std::vector<CompletionPiece>> All();

  static constexpr int kMaxTries = 5;

  bool done() const { return open_ == 0; }
  // Returns the policy of all answers, after the first part.
  const ServedPolicy& policy() const { return policy_; }
  // Returns the number of tokens that were sampled, end tokens included.
  int64_t num_tokens() const { return num_tokens_; }
  // Returns how often the answers were begun again.
  int num_retries() const { return num_tries_ - 1; }

 private:
  struct Answer {
    AnswerText text;
    std::vector<int32_t> held_ids;  // not returned yet
    std::vector<float> held_logprobs;
  };

  absl::Status Begin();
  // Waits for an event and turns it into a part, which may be empty.
  absl::StatusOr<CompletionPiece> Receive();
  absl::StatusOr<CompletionPiece> ToPiece(AnswerEvent event);
  // Begins again if that helps; otherwise returns the error.
  absl::Status Recover(const absl::Status& error);

  WorkerDesk& desk_;
  const Tokenizer& tokenizer_;
  const CompletionKind kind_;
  const std::vector<std::string> stops_;
  const CompletionLimits limits_;
  const std::function<bool()> gives_up_;
  const absl::Time deadline_;
  std::vector<DecodeRequest> requests_;
  std::unique_ptr<AnswerBatch> batch_;
  std::vector<Answer> answers_;
  size_t open_;
  bool is_told_ = false;
  ServedPolicy policy_;
  int64_t num_tokens_ = 0;
  int num_tries_ = 1;
};

}  // namespace dapd
