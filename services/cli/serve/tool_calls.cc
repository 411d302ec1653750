#include "services/cli/serve/tool_calls.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

#include "common/base/json.h"
#include "common/base/json_lines.h"

namespace dapd {
namespace {

constexpr absl::string_view kBegin = "<tool_call>";
constexpr absl::string_view kEnd = "</tool_call>";

std::optional<ToolCall> ReadCall(absl::string_view text) {
  const auto json = ParseOrderedJson(text, "a tool call");
  if (!json.ok() || !json->is_object() || !json->contains("name") ||
      !(*json)["name"].is_string()) {
    return std::nullopt;
  }
  ToolCall call{.name = (*json)["name"].get<std::string>(), .arguments = "{}"};
  if (json->contains("arguments")) {
    const nlohmann::ordered_json& arguments = (*json)["arguments"];
    if (!arguments.is_object()) return std::nullopt;
    call.arguments = arguments.dump();
  }
  return call;
}

}  // namespace

AnswerWithCalls ReadToolCalls(absl::string_view answer) {
  const AnswerWithCalls all_content{.content = std::string(answer)};
  const size_t first = answer.find(kBegin);
  if (first == absl::string_view::npos) return all_content;
  AnswerWithCalls read;
  read.content =
      std::string(absl::StripTrailingAsciiWhitespace(answer.substr(0, first)));
  absl::string_view rest = absl::StripAsciiWhitespace(answer.substr(first));
  while (!rest.empty()) {
    const size_t end = rest.find(kEnd);
    if (!absl::StartsWith(rest, kBegin) || end == absl::string_view::npos) {
      return all_content;
    }
    std::optional<ToolCall> call =
        ReadCall(rest.substr(kBegin.size(), end - kBegin.size()));
    if (!call.has_value()) return all_content;
    read.calls.push_back(*std::move(call));
    rest = absl::StripLeadingAsciiWhitespace(rest.substr(end + kEnd.size()));
  }
  return read;
}

}  // namespace dapd
