// Writes answers in the form of OpenAI's API: whole ones, and the events of a
// stream.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/json.h"
#include "common/rpc/transfer/served_policy.h"
#include "common/tokenizer/tokenizer.h"
#include "services/cli/serve/completion.h"
#include "services/cli/serve/completion_request.h"

namespace dapd {

struct CompletionUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

// The value of "system_fingerprint": "policy-12-3f6c0a91d2b4", by optimizer
// steps and the beginning of the adapter's digest; "base" without an adapter.
std::string FingerprintOf(const ServedPolicy& policy);

// Writes the answers to one request. Not thread-safe.
class CompletionBody {
 public:
  // Draws the answers' id. `echo`: the prompts that are put before the answers,
  // each as a text and its tokens; none without echo. `model`: the name of the
  // model. `tokenizer` must outlive the object.
  CompletionBody(const CompletionRequest& request,
                 const Tokenizer& tokenizer,
                 const std::string& model,
                 std::vector<TextPrompt> echo);

  void SetPolicy(const ServedPolicy& policy);

  nlohmann::ordered_json Whole(const std::vector<CompletionPiece>& answers,
                               const CompletionUsage& usage) const;

  // The events of a stream, each "data: {...}\n\n". The first of a chat says
  // the role; the first of completions with `echo` has the prompt.
  std::string Opening() const;
  // With tools the calls come when the answer has ended: until then its text is
  // held back.
  std::string Event(const CompletionPiece& piece);
  std::string UsageEvent(const CompletionUsage& usage) const;
  std::string ErrorEvent(const absl::Status& error) const;
  static std::string Closing() { return "data: [DONE]\n\n"; }

 private:
  nlohmann::ordered_json Frame(bool is_chunk) const;
  // Return the value of "logprobs" for tokens of an answer.
  nlohmann::ordered_json ChatLogprobs(const CompletionPiece& piece) const;
  // If `prompt` is not null, its tokens come first, with `scores` behind the
  // first. `characters` are the characters that the text in front of them has
  // begun, and is moved behind the last token. A token's offset is the
  // character that its first byte belongs to.
  nlohmann::ordered_json TextLogprobs(const TextPrompt* prompt,
                                      const std::vector<ScoredToken>& scores,
                                      const CompletionPiece& piece,
                                      int64_t* characters) const;
  // Returns the text of a token, also of a special one.
  std::string TextOf(int32_t id) const;
  // Returns {text: log-probability} of a token with this text and of the most
  // probable token in its place.
  nlohmann::ordered_json TopJson(const std::string& text,
                                 const ScoredToken& score) const;
  nlohmann::ordered_json ChunkChoice(const CompletionPiece& piece);
  std::string ToEvent(nlohmann::ordered_json choices) const;

  const bool is_chat_;
  const std::optional<int64_t> logprobs_;
  const bool has_tools_;
  const bool has_usage_;
  const int64_t n_;
  const Tokenizer& tokenizer_;
  const std::string model_;
  const std::vector<TextPrompt> echo_;  // by prompt; empty: no echo
  const std::string id_;
  const int64_t created_;
  std::string fingerprint_;
  std::vector<CompletionPiece> held_;  // by answer, with tools
  std::vector<int64_t> characters_;    // by answer, of the text so far
};

}  // namespace dapd
