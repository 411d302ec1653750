// Reads the body of POST /v1/chat/completions and /v1/completions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/generation/sampling.h"
#include "common/tokenizer/chat_template.h"

namespace dapd {

enum class CompletionKind { kChat, kText };

// A prompt of /v1/completions: a text, or its tokens.
struct TextPrompt {
  std::string text;
  std::vector<int32_t> ids;  // used if not empty
};

struct CompletionRequest {
  CompletionKind kind = CompletionKind::kChat;
  std::string model;  // empty: not named

  // These fields are set for a chat alone.
  std::vector<ChatMessage> messages;
  ChatRenderOptions render;  // with the tools

  // These fields are set for completions alone.
  std::vector<TextPrompt> prompts;
  bool echo = false;

  // The temperature, top_k and top_p. max_new_tokens is not set here.
  SamplingParams sampling;
  std::optional<int64_t> max_tokens;
  std::optional<uint64_t> seed;
  int64_t n = 1;
  std::vector<std::string> stop;
  // If it is set, the log-probabilities of the sampled tokens are asked for,
  // with `echo` also of the prompt's; 1: and beside each the most probable
  // token in its place. A chat has 0 at most.
  std::optional<int64_t> logprobs;
  bool stream = false;
  bool include_usage = false;  // at the end of a stream

  // Returns whether it asks for the log-probabilities of its prompts.
  bool ScoresPrompts() const { return echo && logprobs.has_value(); }

  // Returns the number of answers that it asks for.
  int64_t NumAnswers() const {
    return n * (kind == CompletionKind::kChat
                    ? 1
                    : static_cast<int64_t>(prompts.size()));
  }
};

// The limits of one request; the HTTP server limits the bytes of its body.
inline constexpr int64_t kMaxAnswersOfRequest = 128;
// The tokens of prompts whose log-probabilities it may ask for: the response
// takes a few hundred bytes for each.
inline constexpr int64_t kMaxScoredTokens = 1 << 18;
inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 1024;

// Parses a JSON object. A parameter that this server does not know, or a value
// that it does not support, is INVALID_ARGUMENT and names the parameter
// (api_error.h), except for a value that asks for nothing, such as null or
// "frequency_penalty": 0. Messages are read as OpenAI's clients write them: a
// content is a string, null, or a list of text parts; further keys go to the
// chat template, and the arguments of a tool call that are written as text
// become the object that templates expect.
absl::StatusOr<CompletionRequest> ParseCompletionRequest(
    CompletionKind kind, absl::string_view body);

}  // namespace dapd
