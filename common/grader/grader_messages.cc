#include "common/grader/grader_messages.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace dapd {
namespace {

// The most bytes of a grader's text that a message quotes.
constexpr size_t kMaxQuoted = 200;

absl::Status Nonsense(absl::string_view what, const nlohmann::json& message) {
  const std::string text =
      message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", Printable(Utf8Head(text, kMaxQuoted))));
}

}  // namespace

std::string QuestionJson(const GraderQuestion& question) {
  const nlohmann::ordered_json head = {{"id", question.id},
                                       {"problem_id", question.problem_id},
                                       {"problem", question.problem},
                                       {"reference", question.reference},
                                       {"expected", question.expected},
                                       {"answer", question.answer}};
  std::string text =
      head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.pop_back();
  // The row is JSON already.
  return absl::StrCat(text,
                      ",\"row\":",
                      question.row_json.empty() ? "null" : question.row_json,
                      "}");
}

std::string QuestionsJson(std::span<const GraderQuestion> questions) {
  std::string text = "{\"answers\":[";
  for (size_t i = 0; i < questions.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ",", QuestionJson(questions[i]));
  }
  return absl::StrCat(text, "]}");
}

absl::StatusOr<GraderResult> ParseGraderResult(const nlohmann::json& message,
                                               const std::string& id,
                                               size_t max_feedback_bytes) {
  if (!message.is_object()) return Nonsense("not a JSON object", message);
  const auto said_id = message.find("id");
  if (said_id == message.end() || *said_id != id) {
    return Nonsense(
        absl::StrCat("'id' is not '", id, "', the id of the answer"), message);
  }
  GraderResult result;
  const auto error = message.find("error");
  if (error != message.end() && !error->is_null()) {
    if (!error->is_string()) return Nonsense("'error' is not a text", message);
    result.ungraded = Ungraded::kDeclined;
    result.error =
        Printable(Utf8Head(error->get_ref<const std::string&>(), kMaxQuoted));
    return result;
  }
  const auto correct = message.find("correct");
  const auto score = message.find("score");
  const bool has_correct = correct != message.end() && !correct->is_null();
  const bool has_score = score != message.end() && !score->is_null();
  if (!has_correct && !has_score) {
    return Nonsense("neither 'correct' nor 'score'", message);
  }
  if (has_score) {
    // A truth value is no number here.
    if (!ReadNumber(*score, &result.score) ||
        !(result.score >= 0.0 && result.score <= 1.0)) {
      return Nonsense("'score' is not a number from 0 to 1", message);
    }
    result.correct = result.score >= kRightScore;
  }
  if (has_correct) {
    if (!correct->is_boolean()) {
      return Nonsense("'correct' is neither true nor false", message);
    }
    result.correct = correct->get<bool>();
    if (!has_score) result.score = result.correct ? 1.0 : 0.0;
  }
  const auto feedback = message.find("feedback");
  if (feedback != message.end() && !feedback->is_null()) {
    if (!feedback->is_string()) {
      return Nonsense("'feedback' is not a text", message);
    }
    result.feedback = std::string(
        Utf8Head(feedback->get_ref<const std::string&>(), max_feedback_bytes));
  }
  return result;
}

}  // namespace dapd
