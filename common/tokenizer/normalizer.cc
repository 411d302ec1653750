#include "common/tokenizer/normalizer.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/split_pattern.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

std::string StripSpace(const std::string& text, bool left, bool right) {
  const std::vector<CodePoint> points =
      DecodeUtf8(text).value_or(std::vector<CodePoint>{});
  size_t begin = 0;
  size_t end = points.size();
  while (left && begin < end && IsWhitespace(points[begin].value)) ++begin;
  while (right && end > begin && IsWhitespace(points[end - 1].value)) --end;
  if (begin == end) return "";
  return text.substr(points[begin].begin,
                     points[end - 1].end - points[begin].begin);
}

absl::StatusOr<std::string> ReplaceMatches(const SplitPattern& pattern,
                                           const std::string& content,
                                           const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<CodePoint> points, DecodeUtf8(text));
  ASSIGN_OR_RETURN(const std::vector<Span> matches,
                   pattern.Matches(points, {0, points.size()}));
  std::string replaced;
  size_t at = 0;  // byte offset
  const auto byte_of = [&](size_t i) {
    return i < points.size() ? points[i].begin : text.size();
  };
  for (const Span& match : matches) {
    if (match.begin == match.end) {
      return absl::InvalidArgumentError(
          "normalizer: Replace of an empty match is not supported");
    }
    replaced.append(text, at, byte_of(match.begin) - at);
    replaced += content;
    at = byte_of(match.end);
  }
  replaced.append(text, at);
  return replaced;
}

}  // namespace

absl::Status Normalizer::Add(const nlohmann::json& json) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type =
      json.is_object() ? json.value("type", std::string()) : json.dump();
  if (type == "Sequence" && json.contains("normalizers")) {
    for (const nlohmann::json& part : json["normalizers"]) {
      RETURN_IF_ERROR(Add(part));
    }
    return absl::OkStatus();
  }
  for (const auto& [name, form] : {std::pair("NFC", NormalForm::kNfc),
                                   std::pair("NFD", NormalForm::kNfd),
                                   std::pair("NFKC", NormalForm::kNfkc),
                                   std::pair("NFKD", NormalForm::kNfkd)}) {
    if (type != name) continue;
    steps_.push_back(
        [form = form](const std::string& text) -> absl::StatusOr<std::string> {
          return Normalize(text, form);
        });
    return absl::OkStatus();
  }
  if (type == "Lowercase") {
    steps_.push_back(
        [](const std::string& text) -> absl::StatusOr<std::string> {
          return LowerCase(text);
        });
    return absl::OkStatus();
  }
  if (type == "Strip") {
    const bool left = json.value("strip_left", true);
    const bool right = json.value("strip_right", true);
    steps_.push_back(
        [=](const std::string& text) -> absl::StatusOr<std::string> {
          return StripSpace(text, left, right);
        });
    return absl::OkStatus();
  }
  if (type == "Prepend") {
    const std::string prefix = json.value("prepend", std::string());
    steps_.push_back(
        [=](const std::string& text) -> absl::StatusOr<std::string> {
          return text.empty() ? text : prefix + text;
        });
    return absl::OkStatus();
  }
  if (type == "Replace") {
    auto pattern = SplitPattern::Parse(json.value("pattern", nlohmann::json()));
    if (!pattern.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "normalizer: ", std::string(pattern.status().message())));
    }
    const std::string content = json.value("content", std::string());
    steps_.push_back([content,
                      pattern = std::shared_ptr<const SplitPattern>(
                          *std::move(pattern))](const std::string& text) {
      return ReplaceMatches(*pattern, content, text);
    });
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "normalizer: type '",
      type,
      "' is not supported; NFC, NFD, NFKC, NFKD, Lowercase, Strip, Replace and "
      "Prepend are"));
}

absl::StatusOr<Normalizer> Normalizer::Parse(const nlohmann::json& json) {
  Normalizer normalizer;
  RETURN_IF_ERROR(normalizer.Add(json));
  return normalizer;
}

absl::StatusOr<std::string> Normalizer::Apply(absl::string_view text) const {
  std::string normalized(text);
  for (const Step& step : steps_) {
    ASSIGN_OR_RETURN(normalized, step(normalized));
  }
  return normalized;
}

}  // namespace dapd
