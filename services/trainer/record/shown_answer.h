// ShownAnswer: an answer for the status page, the report and the terminal, with
// problem and grade, cut to a size that fits a page. They show a few of each
// step's rollouts and of each evaluation's answers. The texts come from a model
// and may hold any characters: the code that shows them escapes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/generation/decode_request.h"

namespace dapd {

// The numbers of answers shown for a step, and for an evaluation.
inline constexpr size_t kStepAnswers = 4;
inline constexpr size_t kHeldOutAnswers = 8;

// The most bytes of an answer, of a problem, and of an id or a result.
inline constexpr size_t kMaxShownText = 4096;
inline constexpr size_t kMaxShownProblem = 2048;
inline constexpr size_t kMaxShownResult = 512;

enum class AnswerGrade {
  kRight,
  kWrong,
  kNoAnswer,  // it ended without a box
  kCut,       // it has no box, and reached the length limit
  kUngraded,  // the problem has nothing to grade it against
};

// Returns "right", "wrong", "no_answer", "cut", "ungraded".
absl::string_view NameOf(AnswerGrade grade);
// Returns nothing for any other name.
std::optional<AnswerGrade> AnswerGradeOf(absl::string_view name);

// Returns the grade of an answer; arguments as in Grade
// (common/data/grade_answer.h).
AnswerGrade GradeOf(bool has_expected,
                    bool has_box,
                    bool correct,
                    FinishReason finish_reason);

struct ShownAnswer {
  int64_t place = 0;  // in the batch, or among the held-out problems
  std::string id;     // the problem's
  std::string problem;
  std::string text;
  std::string expected;   // empty: nothing
  std::string extracted;  // what its box holds; empty without one
  AnswerGrade grade = AnswerGrade::kUngraded;
  int64_t tokens = 0;  // its end token included
  bool operator==(const ShownAnswer&) const = default;
};

// Returns places of at most `count` of `total` things, spread evenly. A resumed
// run chooses the places of a run that was never interrupted.
std::vector<size_t> SpreadPlaces(size_t total, size_t count);

// Returns well-formed UTF-8 of at most `max_bytes`, at least 256. In the middle
// of a longer text, a line counts the characters that are left out.
std::string CutMiddle(absl::string_view text, size_t max_bytes);

// Cuts all texts of the answer. Cutting again changes nothing.
ShownAnswer CutToShow(ShownAnswer answer);

// Returns [{"place", "id", "problem", "text", "expected", "extracted", "grade",
//   "tokens"}]
nlohmann::ordered_json ToJson(const std::vector<ShownAnswer>& answers);
// Parses ToJson's rows and cuts their texts again. DATA_LOSS, naming `where`,
// for anything else.
absl::StatusOr<std::vector<ShownAnswer>> ParseShownAnswers(
    const nlohmann::ordered_json& json, const std::string& where);

// Held-out answers to one problem by two policies.
struct AnswerPair {
  std::optional<ShownAnswer> before;
  std::optional<ShownAnswer> after;
};

// Returns pairs by problem, in the order of `before`, then the problems that
// only `after` has, for example since evaluation.path has changed.
std::vector<AnswerPair> PairAnswers(const std::vector<ShownAnswer>& before,
                                    const std::vector<ShownAnswer>& after);

}  // namespace dapd
