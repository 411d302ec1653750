#include "services/cli/serve/completion_body.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/random_name.h"
#include "common/base/utf8.h"
#include "services/cli/serve/api_error.h"
#include "services/cli/serve/tool_calls.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kDigestCharacters = 12;

std::string DataEvent(const Json& json) {
  return absl::StrCat("data: ", json.dump(), "\n\n");
}

Json UsageJson(const CompletionUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

Json CallsJson(const std::vector<ToolCall>& calls, bool is_chunk) {
  Json list = Json::array();
  for (const ToolCall& call : calls) {
    Json json = Json::object();
    if (is_chunk) json["index"] = list.size();
    json["id"] = absl::StrCat("call_", RandomName());
    json["type"] = "function";
    json["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    list.push_back(std::move(json));
  }
  return list;
}

// Returns null for an answer that goes on.
Json FinishReasonJson(CompletionEnd end, bool has_calls) {
  if (end == CompletionEnd::kNone) return nullptr;
  return has_calls ? "tool_calls" : NameOf(end);
}

}  // namespace

std::string FingerprintOf(const ServedPolicy& policy) {
  if (policy.digest.empty()) return "base";
  return absl::StrCat("policy-",
                      policy.version,
                      "-",
                      policy.digest.substr(0, kDigestCharacters));
}

CompletionBody::CompletionBody(const CompletionRequest& request,
                               const Tokenizer& tokenizer,
                               const std::string& model,
                               std::vector<TextPrompt> echo)
    : is_chat_(request.kind == CompletionKind::kChat),
      logprobs_(request.logprobs),
      has_tools_(!request.render.tools.empty()),
      has_usage_(request.include_usage),
      n_(request.n),
      tokenizer_(tokenizer),
      model_(model),
      echo_(std::move(echo)),
      id_(absl::StrCat(is_chat_ ? "chatcmpl-" : "cmpl-", RandomName())),
      created_(absl::ToUnixSeconds(absl::Now())),
      held_(static_cast<size_t>(request.NumAnswers())),
      characters_(static_cast<size_t>(request.NumAnswers())) {}

void CompletionBody::SetPolicy(const ServedPolicy& policy) {
  fingerprint_ = FingerprintOf(policy);
}

Json CompletionBody::Frame(bool is_chunk) const {
  const char* object = "text_completion";
  if (is_chat_) object = is_chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_},
          {"system_fingerprint", fingerprint_}};
}

std::string CompletionBody::TextOf(int32_t id) const {
  // A sampled id was decoded before, as a part of the text. The most probable
  // one may be a padding row of the head, which has no text.
  return tokenizer_.Decode({id}, /*skip_special_tokens=*/false).value_or("");
}

Json CompletionBody::ChatLogprobs(const CompletionPiece& piece) const {
  if (!logprobs_.has_value()) return nullptr;
  Json content = Json::array();
  for (size_t i = 0; i < piece.ids.size(); ++i) {
    const std::string text = TextOf(piece.ids[i]);
    // A part of a character has no text of its own.
    Json bytes = nullptr;
    if (!absl::StrContains(text, "\xEF\xBF\xBD")) {
      bytes = std::vector<uint8_t>(text.begin(), text.end());
    }
    content.push_back({{"token", text},
                       {"logprob", piece.logprobs[i]},
                       {"bytes", std::move(bytes)},
                       {"top_logprobs", Json::array()}});
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json CompletionBody::TopJson(const std::string& text,
                             const ScoredToken& score) const {
  Json top = Json::object();
  top[text] = score.logprob;
  // Two tokens may have one text; then the most probable one's value stays.
  top[TextOf(score.top.id)] = score.top.logprob;
  return top;
}

Json CompletionBody::TextLogprobs(const TextPrompt* prompt,
                                  const std::vector<ScoredToken>& scores,
                                  const CompletionPiece& piece,
                                  int64_t* characters) const {
  if (!logprobs_.has_value()) return nullptr;
  const bool has_top = *logprobs_ > 0;
  Json tokens = Json::array();
  Json values = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  const auto add = [&](int32_t id) {
    tokens.push_back(TextOf(id));
    const std::string bytes = tokenizer_.BytesOf(id).value_or("");
    const bool continues =
        *characters > 0 && !bytes.empty() && !BeginsCharacter(bytes.front());
    offsets.push_back(*characters - (continues ? 1 : 0));
    *characters += std::ranges::count_if(bytes, BeginsCharacter);
  };
  const auto add_scored = [&](int32_t id, const ScoredToken& score) {
    add(id);
    values.push_back(score.logprob);
    if (has_top) {
      tops.push_back(
          TopJson(tokens.back().get_ref<const std::string&>(), score));
    }
  };
  if (prompt != nullptr) {
    // Nothing stands in front of the first token.
    add(prompt->ids.front());
    values.push_back(nullptr);
    tops.push_back(nullptr);
    for (size_t i = 0; i < scores.size(); ++i) {
      add_scored(prompt->ids[i + 1], scores[i]);
    }
  }
  for (size_t i = 0; i < piece.ids.size(); ++i) {
    // Only at temperature 0 are the most probable tokens asked for.
    const int32_t id = piece.ids[i];
    const float logprob = piece.logprobs[i];
    add_scored(id, {.logprob = logprob, .top = {id, logprob}});
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", has_top ? std::move(tops) : Json(nullptr)},
          {"text_offset", std::move(offsets)}};
}

Json CompletionBody::Whole(const std::vector<CompletionPiece>& answers,
                           const CompletionUsage& usage) const {
  Json choices = Json::array();
  for (size_t i = 0; i < answers.size(); ++i) {
    const CompletionPiece& answer = answers[i];
    Json choice = {{"index", i}};
    bool has_calls = false;
    if (is_chat_) {
      AnswerWithCalls read{.content = answer.text};
      if (has_tools_) read = ReadToolCalls(answer.text);
      has_calls = !read.calls.empty();
      Json message = {{"role", "assistant"}, {"content", read.content}};
      if (has_calls) {
        if (read.content.empty()) message["content"] = nullptr;
        message["tool_calls"] = CallsJson(read.calls, /*is_chunk=*/false);
      }
      choice["message"] = std::move(message);
      choice["logprobs"] = ChatLogprobs(answer);
    } else {
      const size_t prompt = i / static_cast<size_t>(n_);
      const TextPrompt* before = echo_.empty() ? nullptr : &echo_[prompt];
      choice["text"] =
          before == nullptr ? answer.text : before->text + answer.text;
      // The first answer to a prompt has the prompt's scores.
      const CompletionPiece& first = answers[prompt * static_cast<size_t>(n_)];
      int64_t characters = 0;
      choice["logprobs"] =
          TextLogprobs(before, first.prompt_scores, answer, &characters);
    }
    choice["finish_reason"] = FinishReasonJson(answer.end, has_calls);
    choices.push_back(std::move(choice));
  }
  Json body = Frame(/*is_chunk=*/false);
  body["choices"] = std::move(choices);
  body["usage"] = UsageJson(usage);
  return body;
}

std::string CompletionBody::ToEvent(Json choices) const {
  Json body = Frame(/*is_chunk=*/true);
  body["choices"] = std::move(choices);
  if (has_usage_) body["usage"] = nullptr;
  return DataEvent(body);
}

std::string CompletionBody::Opening() const {
  std::string events;
  for (size_t i = 0; i < held_.size(); ++i) {
    Json choice = {{"index", i}};
    if (is_chat_) {
      choice["delta"] = {{"role", "assistant"}, {"content", ""}};
    } else if (!echo_.empty()) {
      choice["text"] = echo_[i / static_cast<size_t>(n_)].text;
    } else {
      continue;
    }
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = nullptr;
    events += ToEvent(Json::array({std::move(choice)}));
  }
  return events;
}

Json CompletionBody::ChunkChoice(const CompletionPiece& piece) {
  Json choice = {{"index", piece.answer}};
  bool has_calls = false;
  if (is_chat_) {
    AnswerWithCalls read{.content = piece.text};
    if (has_tools_) read = ReadToolCalls(piece.text);
    has_calls = !read.calls.empty();
    Json delta = Json::object();
    if (!read.content.empty()) delta["content"] = read.content;
    if (has_calls) delta["tool_calls"] = CallsJson(read.calls, true);
    choice["delta"] = std::move(delta);
    choice["logprobs"] = ChatLogprobs(piece);
  } else {
    choice["text"] = piece.text;
    choice["logprobs"] =
        TextLogprobs(nullptr, {}, piece, &characters_[piece.answer]);
  }
  choice["finish_reason"] = FinishReasonJson(piece.end, has_calls);
  return choice;
}

std::string CompletionBody::Event(const CompletionPiece& piece) {
  if (!is_chat_ || !has_tools_) {
    return ToEvent(Json::array({ChunkChoice(piece)}));
  }
  CompletionPiece& held = held_[piece.answer];
  held.Append(piece);
  if (piece.end == CompletionEnd::kNone) return "";
  return ToEvent(Json::array({ChunkChoice(held)}));
}

std::string CompletionBody::UsageEvent(const CompletionUsage& usage) const {
  Json body = Frame(/*is_chunk=*/true);
  body["choices"] = Json::array();
  body["usage"] = UsageJson(usage);
  return DataEvent(body);
}

std::string CompletionBody::ErrorEvent(const absl::Status& error) const {
  return DataEvent(ErrorBody(error));
}

}  // namespace dapd
