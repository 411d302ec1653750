#include "services/trainer/record/shown_answer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/base/utf8.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<AnswerGrade, absl::string_view>, 5> kGradeNames =
    {{{AnswerGrade::kRight, "right"},
      {AnswerGrade::kWrong, "wrong"},
      {AnswerGrade::kNoAnswer, "no_answer"},
      {AnswerGrade::kCut, "cut"},
      {AnswerGrade::kUngraded, "ungraded"}}};

// More bytes than the line that replaces the middle has.
constexpr size_t kMarkBytes = 80;

bool IsSameProblem(const ShownAnswer& a, const ShownAnswer& b) {
  return a.place == b.place && a.id == b.id && a.problem == b.problem;
}

}  // namespace

absl::string_view NameOf(AnswerGrade grade) {
  for (const auto& [known, name] : kGradeNames) {
    if (known == grade) return name;
  }
  return "";
}

std::optional<AnswerGrade> AnswerGradeOf(absl::string_view name) {
  for (const auto& [grade, known] : kGradeNames) {
    if (name == known) return grade;
  }
  return std::nullopt;
}

AnswerGrade GradeOf(bool has_expected,
                    bool has_box,
                    bool correct,
                    FinishReason finish_reason) {
  if (!has_expected) return AnswerGrade::kUngraded;
  if (correct) return AnswerGrade::kRight;
  if (has_box) return AnswerGrade::kWrong;
  return finish_reason == FinishReason::kLength ? AnswerGrade::kCut
                                                : AnswerGrade::kNoAnswer;
}

std::vector<size_t> SpreadPlaces(size_t total, size_t count) {
  std::vector<size_t> places;
  const size_t chosen = std::min(total, count);
  for (size_t k = 0; k < chosen; ++k) places.push_back(k * total / chosen);
  return places;
}

std::string CutMiddle(absl::string_view text, size_t max_bytes) {
  std::string whole = ToUtf8(text);
  if (whole.size() <= max_bytes) return whole;
  const size_t half = (max_bytes - kMarkBytes) / 2;
  size_t head = half;
  while (!BeginsCharacter(whole[head])) --head;
  size_t tail = whole.size() - half;
  while (tail < whole.size() && !BeginsCharacter(whole[tail])) ++tail;
  const auto left_out =
      std::count_if(whole.begin() + static_cast<std::ptrdiff_t>(head),
                    whole.begin() + static_cast<std::ptrdiff_t>(tail),
                    BeginsCharacter);
  return absl::StrCat(absl::string_view(whole).substr(0, head),
                      "\n[... ",
                      left_out,
                      " characters left out ...]\n",
                      absl::string_view(whole).substr(tail));
}

ShownAnswer CutToShow(ShownAnswer answer) {
  answer.id = CutMiddle(answer.id, kMaxShownResult);
  answer.problem = CutMiddle(answer.problem, kMaxShownProblem);
  answer.text = CutMiddle(answer.text, kMaxShownText);
  answer.expected = CutMiddle(answer.expected, kMaxShownResult);
  answer.extracted = CutMiddle(answer.extracted, kMaxShownResult);
  return answer;
}

Json ToJson(const std::vector<ShownAnswer>& answers) {
  Json rows = Json::array();
  for (const ShownAnswer& answer : answers) {
    rows.push_back({{"place", answer.place},
                    {"id", answer.id},
                    {"problem", answer.problem},
                    {"text", answer.text},
                    {"expected", answer.expected},
                    {"extracted", answer.extracted},
                    {"grade", std::string(NameOf(answer.grade))},
                    {"tokens", answer.tokens}});
  }
  return rows;
}

absl::StatusOr<std::vector<ShownAnswer>> ParseShownAnswers(
    const Json& json, const std::string& where) try {
  if (!json.is_array()) {
    return absl::DataLossError(
        absl::StrCat(where, " holds no list of answers"));
  }
  std::vector<ShownAnswer> answers;
  for (const Json& row : json) {
    ShownAnswer answer;
    row.at("place").get_to(answer.place);
    row.at("id").get_to(answer.id);
    row.at("problem").get_to(answer.problem);
    row.at("text").get_to(answer.text);
    row.at("expected").get_to(answer.expected);
    row.at("extracted").get_to(answer.extracted);
    row.at("tokens").get_to(answer.tokens);
    const auto name = row.at("grade").get<std::string>();
    const std::optional<AnswerGrade> grade = AnswerGradeOf(name);
    if (!grade.has_value()) {
      return absl::DataLossError(
          absl::StrCat(where, ": '", name, "' is not a grade of an answer"));
    }
    answer.grade = *grade;
    answers.push_back(CutToShow(std::move(answer)));
  }
  return answers;
} catch (const Json::exception& error) {
  return absl::DataLossError(
      absl::StrCat(where, " holds no answers: ", error.what()));
}

std::vector<AnswerPair> PairAnswers(const std::vector<ShownAnswer>& before,
                                    const std::vector<ShownAnswer>& after) {
  std::vector<AnswerPair> pairs;
  for (const ShownAnswer& answer : before) pairs.push_back({.before = answer});
  for (const ShownAnswer& answer : after) {
    const auto partner =
        std::ranges::find_if(pairs, [&](const AnswerPair& pair) {
          return pair.before.has_value() && !pair.after.has_value() &&
                 IsSameProblem(*pair.before, answer);
        });
    if (partner == pairs.end()) {
      pairs.push_back({.after = answer});
    } else {
      partner->after = answer;
    }
  }
  return pairs;
}

}  // namespace dapd
