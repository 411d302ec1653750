#include "services/cli/serve/completion_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/base/json_integer.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "services/cli/serve/api_error.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

// Parameters that are accepted with these values only, which ask for nothing.
struct Neutral {
  const char* name;
  std::vector<Json> values;
};

const std::vector<Neutral>& Neutrals() {
  static const auto* const kNeutrals = new std::vector<Neutral>{
      {"add_generation_prompt", {true}},
      {"add_special_tokens", {false}},
      {"best_of", {1}},
      {"continue_final_message", {false}},
      {"frequency_penalty", {0}},
      {"functions", {Json::array()}},
      {"function_call", {"none", "auto"}},
      {"ignore_eos", {false}},
      {"length_penalty", {1}},
      {"logit_bias", {Json::object()}},
      {"min_p", {0}},
      {"min_tokens", {0}},
      {"modalities", {Json::array({"text"})}},
      {"parallel_tool_calls", {true}},
      {"presence_penalty", {0}},
      {"repetition_penalty", {1}},
      {"response_format", {{{"type", "text"}}}},
      {"service_tier", {"auto", "default"}},
      {"skip_special_tokens", {true}},
      {"stop_token_ids", {Json::array()}},
      {"store", {false}},
      {"suffix", {""}},
      {"use_beam_search", {false}},
  };
  return *kNeutrals;
}

// Parameters that say who asks and change no answer.
constexpr const char* kLabels[] = {
    "metadata", "prompt_cache_key", "safety_identifier", "user"};

absl::Status WrongType(const char* name, const char* expected) {
  return ParameterError(name, absl::StrCat("'", name, "' must be ", expected));
}

absl::Status ReadFlag(const Json& value, const char* name, bool* flag) {
  if (!value.is_boolean()) return WrongType(name, "true or false");
  *flag = value.get<bool>();
  return absl::OkStatus();
}

absl::Status ReadInteger(const Json& value,
                         const char* name,
                         int64_t low,
                         int64_t high,
                         int64_t* number) {
  if (ReadNumber(value, number) && *number >= low && *number <= high) {
    return absl::OkStatus();
  }
  return ParameterError(
      name,
      absl::StrCat("'", name, "' must be an integer from ", low, " to ", high));
}

absl::Status ReadReal(const Json& value,
                      const char* name,
                      double low,
                      double high,
                      double* number) {
  if (ReadNumber(value, number) && *number >= low && *number <= high) {
    return absl::OkStatus();
  }
  return ParameterError(
      name,
      absl::StrCat("'", name, "' must be a number from ", low, " to ", high));
}

// OpenAI's seeds are any 64-bit integers.
absl::Status ReadSeed(const Json& value, std::optional<uint64_t>* seed) {
  uint64_t positive = 0;
  int64_t negative = 0;
  if (ReadNumber(value, &positive)) {
    *seed = positive;
  } else if (ReadNumber(value, &negative)) {
    *seed = static_cast<uint64_t>(negative);
  } else {
    return WrongType("seed", "an integer of 64 bits");
  }
  return absl::OkStatus();
}

absl::Status ReadStops(const Json& value, std::vector<std::string>* stops) {
  const Json list = value.is_string() ? Json::array({value}) : value;
  if (!list.is_array()) return WrongType("stop", "a string or a list of them");
  if (list.size() > kMaxStops) {
    return ParameterError(
        "stop", absl::StrCat("'stop' has more than ", kMaxStops, " strings"));
  }
  for (const Json& item : list) {
    if (!item.is_string()) {
      return WrongType("stop", "a string or a list of them");
    }
    std::string text = item.get<std::string>();
    if (text.empty() || text.size() > kMaxStopBytes) {
      return ParameterError(
          "stop",
          absl::StrCat(
              "a string of 'stop' must have 1 to ", kMaxStopBytes, " bytes"));
    }
    stops->push_back(std::move(text));
  }
  return absl::OkStatus();
}

// In a chat the value is true or false, in completions the number of the most
// probable tokens to be named.
absl::Status ReadLogprobs(const Json& value, CompletionRequest* request) {
  if (request->kind == CompletionKind::kChat) {
    bool is_asked = false;
    RETURN_IF_ERROR(ReadFlag(value, "logprobs", &is_asked));
    if (is_asked) request->logprobs = 0;
    return absl::OkStatus();
  }
  int64_t top = 0;
  RETURN_IF_ERROR(ReadInteger(
      value, "logprobs", 0, std::numeric_limits<int32_t>::max(), &top));
  if (top > 1) {
    return ParameterError(
        "logprobs",
        "the workers name the most probable token and no further ones: "
        "'logprobs' must be 0, 1 or absent");
  }
  request->logprobs = top;
  return absl::OkStatus();
}

absl::Status ReadTopLogprobs(const Json& value) {
  if (value == 0) return absl::OkStatus();
  return ParameterError(
      "top_logprobs",
      "the workers give the log-probability of the sampled token and of no "
      "other: 'top_logprobs' must be 0 or absent");
}

absl::Status ReadTemplateArguments(const Json& value,
                                   CompletionRequest* request) {
  constexpr const char* kName = "chat_template_kwargs";
  if (!value.is_object()) return WrongType(kName, "an object");
  for (const auto& item : value.items()) {
    if (item.key() != "enable_thinking" || !item.value().is_boolean()) {
      return ParameterError(
          kName,
          "'chat_template_kwargs' may hold enable_thinking, true or false, and "
          "nothing else");
    }
    request->render.enable_thinking = item.value().get<bool>();
  }
  return absl::OkStatus();
}

absl::Status ReadStreamOptions(const Json& value, CompletionRequest* request) {
  constexpr const char* kName = "stream_options";
  if (!value.is_object()) return WrongType(kName, "an object");
  for (const auto& item : value.items()) {
    if (item.key() == "include_usage") {
      RETURN_IF_ERROR(ReadFlag(item.value(), kName, &request->include_usage));
    } else if (item.key() != "include_obfuscation" || item.value() != false) {
      return ParameterError(
          kName, "'stream_options' may hold include_usage and nothing else");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadParts(const Json& parts,
                                      const std::string& where) {
  std::string text;
  for (const Json& part : parts) {
    if (!part.is_object() || !part.contains("type") || part["type"] != "text" ||
        !part.contains("text") || !part["text"].is_string()) {
      return ParameterError(
          "messages",
          absl::StrCat(where,
                       " has a part that is not {\"type\": \"text\", "
                       "\"text\": string}; the models here read text only"));
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

// Clients write the arguments of a call as JSON text, while templates expect
// the object.
void OpenArguments(Json* calls) {
  if (!calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function")) continue;
    Json& function = call["function"];
    if (!function.is_object() || !function.contains("arguments") ||
        !function["arguments"].is_string()) {
      continue;
    }
    auto opened =
        ParseOrderedJson(function["arguments"].get<std::string>(), "arguments");
    if (opened.ok() && opened->is_object()) {
      function["arguments"] = *std::move(opened);
    }
  }
}

absl::StatusOr<ChatMessage> ReadMessage(const Json& json,
                                        const std::string& where) {
  if (!json.is_object() || !json.contains("role") ||
      !json["role"].is_string()) {
    return ParameterError("messages",
                          absl::StrCat(where, " needs a role, a string"));
  }
  ChatMessage message{.role = json["role"].get<std::string>(), .content = ""};
  Json more = Json::object();
  for (const auto& item : json.items()) {
    const Json& value = item.value();
    if (item.key() == "role") continue;
    if (item.key() == "content") {
      if (value.is_string()) {
        message.content = value.get<std::string>();
      } else if (value.is_array()) {
        ASSIGN_OR_RETURN(message.content, ReadParts(value, where));
      } else if (value.is_null()) {
        more["content"] = nullptr;
      } else {
        return ParameterError(
            "messages", absl::StrCat(where, " has a content that is not text"));
      }
      continue;
    }
    if (value.is_null()) continue;
    more[item.key()] = value;
    if (item.key() == "tool_calls") OpenArguments(&more[item.key()]);
  }
  const bool has_content =
      json.contains("content") && !json["content"].is_null();
  if (!has_content && !more.contains("tool_calls")) {
    return ParameterError(
        "messages",
        absl::StrCat(where, " has neither a content nor tool_calls"));
  }
  if (!more.empty()) message.more = more.dump();
  return message;
}

absl::Status ReadMessages(const Json& value, CompletionRequest* request) {
  if (!value.is_array() || value.empty()) {
    return WrongType("messages", "a list of at least one message");
  }
  for (const Json& json : value) {
    const std::string where =
        absl::StrCat("message ", request->messages.size() + 1);
    ASSIGN_OR_RETURN(ChatMessage message, ReadMessage(json, where));
    request->messages.push_back(std::move(message));
  }
  return absl::OkStatus();
}

absl::Status ReadTools(const Json& value, CompletionRequest* request) {
  if (!value.is_array()) return WrongType("tools", "a list of objects");
  for (const Json& tool : value) {
    if (!tool.is_object()) return WrongType("tools", "a list of objects");
  }
  if (!value.empty()) request->render.tools = value.dump();
  return absl::OkStatus();
}

absl::Status ReadPrompts(const Json& value, CompletionRequest* request) {
  const bool is_one =
      value.is_string() ||
      (value.is_array() && !value.empty() && value.front().is_number());
  const Json list = is_one ? Json::array({value}) : value;
  if (!list.is_array() || list.empty()) {
    return WrongType("prompt",
                     "a string, a list of strings, a list of token ids, or a "
                     "list of such lists, and not empty");
  }
  for (const Json& item : list) {
    TextPrompt prompt;
    if (item.is_string()) {
      prompt.text = item.get<std::string>();
    } else if (item.is_array()) {
      auto ids = JsonTokenIds(item, "prompt");
      if (!ids.ok())
        return ParameterError("prompt", std::string(ids.status().message()));
      prompt.ids = *std::move(ids);
    } else {
      return WrongType("prompt",
                       "a string, a list of strings, a list of token ids, or "
                       "a list of such lists");
    }
    if (prompt.text.empty() && prompt.ids.empty()) {
      return ParameterError("prompt", "a prompt is empty");
    }
    request->prompts.push_back(std::move(prompt));
  }
  return absl::OkStatus();
}

// Returns whether the parameter is for this kind of request and was read.
absl::StatusOr<bool> ReadOfKind(const std::string& name,
                                const Json& value,
                                CompletionRequest* request) {
  if (request->kind == CompletionKind::kText) {
    if (name == "prompt") {
      RETURN_IF_ERROR(ReadPrompts(value, request));
    } else if (name == "echo") {
      RETURN_IF_ERROR(ReadFlag(value, "echo", &request->echo));
    } else {
      return false;
    }
    return true;
  }
  if (name == "messages") {
    RETURN_IF_ERROR(ReadMessages(value, request));
  } else if (name == "tools") {
    RETURN_IF_ERROR(ReadTools(value, request));
  } else if (name == "tool_choice") {
    if (value != "auto" && value != "none") {
      return ParameterError(
          "tool_choice",
          "'tool_choice' must be \"auto\" or \"none\": no answer is forced to "
          "call a tool");
    }
  } else if (name == "top_logprobs") {
    RETURN_IF_ERROR(ReadTopLogprobs(value));
  } else if (name == "chat_template_kwargs") {
    RETURN_IF_ERROR(ReadTemplateArguments(value, request));
  } else {
    return false;
  }
  return true;
}

// Returns whether the parameter was read.
absl::StatusOr<bool> ReadParameter(const std::string& name,
                                   const Json& value,
                                   CompletionRequest* request) {
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  if (name == "model") {
    if (!value.is_string()) return WrongType("model", "a string");
    request->model = value.get<std::string>();
  } else if (name == "max_tokens" || name == "max_completion_tokens") {
    int64_t tokens = 0;
    // CheckWhole says when it may be 0.
    RETURN_IF_ERROR(ReadInteger(value, name.c_str(), 0, kMostTokens, &tokens));
    if (tokens == 0 && request->kind == CompletionKind::kChat) {
      return ParameterError(name,
                            absl::StrCat("'", name, "' must be at least 1"));
    }
    request->max_tokens = tokens;
  } else if (name == "n") {
    RETURN_IF_ERROR(
        ReadInteger(value, "n", 1, kMaxAnswersOfRequest, &request->n));
  } else if (name == "seed") {
    RETURN_IF_ERROR(ReadSeed(value, &request->seed));
  } else if (name == "temperature") {
    RETURN_IF_ERROR(ReadReal(
        value, "temperature", 0.0, 100.0, &request->sampling.temperature));
  } else if (name == "top_p") {
    RETURN_IF_ERROR(
        ReadReal(value, "top_p", 1e-9, 1.0, &request->sampling.top_p));
  } else if (name == "top_k") {
    // vLLM's clients write "all" as -1.
    RETURN_IF_ERROR(
        ReadInteger(value, "top_k", -1, 1'000'000, &request->sampling.top_k));
    request->sampling.top_k = std::max<int64_t>(0, request->sampling.top_k);
  } else if (name == "stop") {
    RETURN_IF_ERROR(ReadStops(value, &request->stop));
  } else if (name == "logprobs") {
    RETURN_IF_ERROR(ReadLogprobs(value, request));
  } else if (name == "stream") {
    RETURN_IF_ERROR(ReadFlag(value, "stream", &request->stream));
  } else if (name == "stream_options") {
    RETURN_IF_ERROR(ReadStreamOptions(value, request));
  } else {
    return ReadOfKind(name, value, request);
  }
  return true;
}

absl::Status CheckNeutral(const std::string& name, const Json& value) {
  if (std::ranges::find(kLabels, name) != std::end(kLabels)) {
    return absl::OkStatus();
  }
  for (const Neutral& neutral : Neutrals()) {
    if (name != neutral.name) continue;
    for (const Json& accepted : neutral.values) {
      if (value == accepted) return absl::OkStatus();
    }
    return ParameterError(
        name, absl::StrCat("'", name, "' is not supported: leave it out"));
  }
  return ParameterError(
      name,
      absl::StrCat("'", name, "' is no parameter that this server knows"));
}

absl::Status CheckWhole(const CompletionRequest& request) {
  const bool is_chat = request.kind == CompletionKind::kChat;
  if (is_chat ? request.messages.empty() : request.prompts.empty()) {
    const char* name = is_chat ? "messages" : "prompt";
    return ParameterError(name, absl::StrCat("'", name, "' is missing"));
  }
  if (request.NumAnswers() > kMaxAnswersOfRequest) {
    return ParameterError("n",
                          absl::StrCat("the request asks for ",
                                       request.NumAnswers(),
                                       " answers; at most ",
                                       kMaxAnswersOfRequest,
                                       " are allowed"));
  }
  if (request.max_tokens == 0 && !request.echo) {
    return ParameterError(
        "max_tokens", "'max_tokens' must be at least 1, except with 'echo'");
  }
  if (request.ScoresPrompts() && request.stream) {
    return ParameterError(
        "stream",
        "the log-probabilities of a prompt are not streamed: leave out "
        "'stream', 'echo' or 'logprobs'");
  }
  const bool draws =
      request.sampling.temperature > 0.0 && request.max_tokens != 0;
  if (request.logprobs == 1 && draws) {
    return ParameterError(
        "logprobs",
        "beside a token that was drawn the workers do not name the most "
        "probable one: 'logprobs' must be 0 or absent, or 'temperature' or "
        "'max_tokens' must be 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletionRequest(
    CompletionKind kind, absl::string_view body) {
  auto parsed = ParseOrderedJson(body, "the body");
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(parsed.status().message());
  }
  if (!parsed->is_object()) {
    return absl::InvalidArgumentError("the body is not a JSON object");
  }
  CompletionRequest request;
  request.kind = kind;
  for (const auto& item : parsed->items()) {
    if (item.value().is_null()) continue;
    ASSIGN_OR_RETURN(const bool is_read,
                     ReadParameter(item.key(), item.value(), &request));
    if (!is_read) RETURN_IF_ERROR(CheckNeutral(item.key(), item.value()));
  }
  if (parsed->contains("tool_choice") && (*parsed)["tool_choice"] == "none") {
    request.render.tools.clear();
  }
  request.render.add_generation_prompt = kind == CompletionKind::kChat;
  RETURN_IF_ERROR(CheckWhole(request));
  return request;
}

}  // namespace dapd
