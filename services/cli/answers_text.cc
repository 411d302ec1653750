#include "services/cli/answers_text.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "services/cli/terminal/side_by_side.h"

namespace dapd {
namespace {

// About 25 lines of half a terminal's width.
constexpr size_t kShortText = 1024;

std::string GradeText(AnswerGrade grade) {
  switch (grade) {
    case AnswerGrade::kRight:
      return "right";
    case AnswerGrade::kWrong:
      return "wrong";
    case AnswerGrade::kNoAnswer:
      return "no answer";
    case AnswerGrade::kCut:
      return "cut off";
    case AnswerGrade::kUngraded:
      return "not graded";
  }
  return "";
}

std::string PolicyText(int64_t version) {
  return version == 0 ? "before training"
                      : absl::StrCat("after step ", version);
}

// Returns "wrong: 41, 120 tokens"
std::string Verdict(const ShownAnswer& answer) {
  return absl::StrCat(GradeText(answer.grade),
                      answer.extracted.empty() ? "" : ": ",
                      answer.extracted,
                      ", ",
                      answer.tokens,
                      answer.tokens == 1 ? " token" : " tokens");
}

std::string HeadOf(const std::optional<ShownAnswer>& answer, int64_t version) {
  return absl::StrCat(PolicyText(version),
                      "\n",
                      answer.has_value() ? Verdict(*answer) : "no answer kept");
}

std::string TextOf(const std::optional<ShownAnswer>& answer, bool is_whole) {
  if (!answer.has_value()) return "";
  return is_whole ? answer->text : CutMiddle(answer->text, kShortText);
}

std::string Wrapped(const std::string& text, size_t width) {
  return absl::StrCat(absl::StrJoin(WrapText(text, width), "\n"), "\n");
}

std::string ProblemText(const ShownAnswer& answer, size_t width) {
  std::string text = absl::StrCat("problem ", answer.id, ": ", answer.problem);
  if (!answer.expected.empty()) {
    absl::StrAppend(&text, "\nexpected: ", answer.expected);
  }
  return Wrapped(text, width);
}

bool IsRight(const std::optional<ShownAnswer>& answer) {
  return answer.has_value() && answer->grade == AnswerGrade::kRight;
}

// Returns whether the pair's answer became right (`right`) or wrong; both must
// be there.
bool Became(const AnswerPair& pair, bool right) {
  return pair.before.has_value() && pair.after.has_value() &&
         IsRight(pair.before) != right && IsRight(pair.after) == right;
}

bool HasChanged(const AnswerPair& pair) {
  return Became(pair, true) || Became(pair, false);
}

// Returns "; 2 became right, 1 became wrong, these first"
std::string ChangesText(const std::vector<AnswerPair>& pairs) {
  const auto count = [&](bool right) {
    return std::ranges::count_if(
        pairs, [&](const AnswerPair& pair) { return Became(pair, right); });
  };
  if (std::ranges::none_of(pairs, HasChanged)) return "";
  return absl::StrCat("; ",
                      count(true),
                      " became right, ",
                      count(false),
                      " became wrong, these first");
}

}  // namespace

std::string HeldOutText(const AnswersToShow& answers,
                        const AnswersTextOptions& options) {
  std::vector<AnswerPair> pairs = answers.held_out;
  std::ranges::stable_partition(pairs, HasChanged);
  const size_t count = std::min(options.count, pairs.size());
  std::string text = absl::StrCat("held-out answers, ",
                                  count,
                                  " of ",
                                  pairs.size(),
                                  " kept",
                                  ChangesText(pairs),
                                  "\n");
  for (size_t i = 0; i < count; ++i) {
    const AnswerPair& pair = pairs[i];
    const ShownAnswer& known =
        pair.before.has_value() ? *pair.before : *pair.after;
    absl::StrAppend(&text, "\n", ProblemText(known, options.width), "\n");
    const int64_t before = answers.before.value_or(0);
    const std::string before_text = TextOf(pair.before, options.is_whole);
    if (!answers.after.has_value()) {
      absl::StrAppend(&text,
                      Wrapped(HeadOf(pair.before, before), options.width),
                      Wrapped(before_text, options.width));
      continue;
    }
    absl::StrAppend(
        &text,
        SideBySide(HeadOf(pair.before, before),
                   HeadOf(pair.after, *answers.after),
                   options.width),
        SideBySide("", "", options.width),
        SideBySide(
            before_text, TextOf(pair.after, options.is_whole), options.width));
  }
  return text;
}

std::string StepText(const StepAnswers& answers,
                     const AnswersTextOptions& options) {
  std::string text = absl::StrCat("answers of step ", answers.step, "\n");
  for (const ShownAnswer& answer : answers.answers) {
    absl::StrAppend(&text,
                    "\n",
                    ProblemText(answer, options.width),
                    Wrapped(Verdict(answer), options.width),
                    "\n",
                    Wrapped(TextOf(answer, options.is_whole), options.width));
  }
  return text;
}

}  // namespace dapd
